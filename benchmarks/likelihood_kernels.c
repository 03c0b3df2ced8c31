// The likelihoods of the paper's tasks as a C programmer would write them for speed: the same arithmetic as src/scorebed/tasks, with
// contrastive parameters contiguous (theta[k][M]), the loop over them innermost, and trajectories shared out among the cores.
// gcc -O3 -march=native -ffast-math -fopenmp -shared -fPIC likelihood_kernels.c -o likelihood_kernels.so -lm
#include <math.h>

// theta [4][M], xi [N][T][2], y [N][T][1], out [N][M]
void location_finding(long N, long T, long M, const float *restrict theta, const float *restrict xi, const float *restrict y,
                      float *restrict out) {
#pragma omp parallel for schedule(static)
  for (long n = 0; n < N; n++) {
    float *o = out + n * M;
    for (long m = 0; m < M; m++) o[m] = 0;
    for (long t = 0; t < T; t++) {
      const float x0 = xi[(n * T + t) * 2], x1 = xi[(n * T + t) * 2 + 1], yt = y[n * T + t];
      for (long m = 0; m < M; m++) {
        float a = theta[m] - x0, b = theta[M + m] - x1, c = theta[2 * M + m] - x0, d = theta[3 * M + m] - x1;
        float mu = 0.1f + 1.f / (1e-4f + a * a + b * b) + 1.f / (1e-4f + c * c + d * d);
        float r = (yt - logf(mu)) * 2.f;
        o[m] += -0.5f * r * r - 0.22579135f;  // log 0.5 + log(2π)/2 = 0.2257913526
      }
    }
  }
}

// theta [4][M] = m1, m2, l1, l2; xi [N][T][2], y [N][T][4], out [N][M]
void double_link(long N, long T, long M, const float *restrict theta, const float *restrict xi, const float *restrict y,
                 float *restrict out) {
  const float g = 9.81f, dt = 0.05f, sd = sqrtf(dt) * 0.1f, norm = 4 * (logf(sd) + 0.91893853f);
  const float *M1 = theta, *M2 = theta + M, *L1 = theta + 2 * M, *L2 = theta + 3 * M;
#pragma omp parallel for schedule(static)
  for (long n = 0; n < N; n++) {
    float *o = out + n * M;
    for (long m = 0; m < M; m++) o[m] = 0;
    for (long t = 0; t < T; t++) {
      const float *yt = y + (n * T + t) * 4, zero[4] = {0, 0, 0, 0}, *s = t ? yt - 4 : zero;
      const float u1 = xi[(n * T + t) * 2], u2 = xi[(n * T + t) * 2 + 1], dq1 = s[2], dq2 = s[3];
      const float cos2 = cosf(s[1]), sin2 = sinf(s[1]), sin1 = sinf(s[0]), sin12 = sinf(s[0] + s[1]);
      const float r1 = (yt[0] - s[0] - dt * dq1) / sd, r2 = (yt[1] - s[1] - dt * dq2) / sd;
      const float fixed = -0.5f * (r1 * r1 + r2 * r2) - norm;
      for (long m = 0; m < M; m++) {
        float m1 = M1[m], m2 = M2[m], l1 = L1[m], l2 = L2[m];
        float coupling = m2 * l1 * l2 * cos2, m22 = m2 * l2 * l2, m12 = m22 + coupling;
        float m11 = (m1 + m2) * l1 * l1 + m22 + 2 * coupling, twist = m2 * l1 * l2 * sin2;
        float c1 = -twist * (2 * dq1 + dq2) * dq2, c2 = 0.5f * twist * ((2 * dq1 + dq2) * dq1 - dq1 * dq2);
        float tau2 = -g * m2 * l2 * sin12, tau1 = tau2 - g * (m1 + m2) * l1 * sin1;
        float f1 = u1 - c1 + tau1, f2 = u2 - c2 + tau2, det = m11 * m22 - m12 * m12;
        float r3 = (yt[2] - dq1 - dt * (m22 * f1 - m12 * f2) / det) / sd;
        float r4 = (yt[3] - dq2 - dt * (m11 * f2 - m12 * f1) / det) / sd;
        o[m] += fixed - 0.5f * (r3 * r3 + r4 * r4);
      }
    }
  }
}

#define TILE 256

// theta [30][M] = ten sources in space, xi [N][T][3], y [N][T][1], out [N][M]. In tiles that stay in the cache, with the loop over
// sources outside: thirty columns at once are more than the compiler vectorises.
void location_finding_3d(long N, long T, long M, const float *restrict theta, const float *restrict xi, const float *restrict y,
                         float *restrict out) {
#pragma omp parallel for schedule(static)
  for (long n = 0; n < N; n++) {
    float *o = out + n * M;
    for (long m = 0; m < M; m++) o[m] = 0;
    for (long t = 0; t < T; t++) {
      const float *x = xi + (n * T + t) * 3, x0 = x[0], x1 = x[1], x2 = x[2], yt = y[n * T + t];
      for (long first = 0; first < M; first += TILE) {
        const long size = M - first < TILE ? M - first : TILE;
        float mu[TILE];
        for (long m = 0; m < size; m++) mu[m] = 0.1f;
        for (int k = 0; k < 10; k++) {
          const float *p = theta + 3 * k * M + first, *q = p + M, *s = q + M;
          for (long m = 0; m < size; m++) {
            float a = p[m] - x0, b = q[m] - x1, c = s[m] - x2;
            mu[m] += 1.f / (1e-4f + a * a + b * b + c * c);
          }
        }
        for (long m = 0; m < size; m++) {
          float r = (yt - logf(mu[m])) * 2.f;
          o[first + m] += -0.5f * r * r - 0.22579135f;
        }
      }
    }
  }
}

// theta [3][M] = x0, depth, kappa; xi [N][T][1], y [N][T][1], out [N][M]
void gravimetry(long N, long T, long M, const float *restrict theta, const float *restrict xi, const float *restrict y,
                float *restrict out) {
#pragma omp parallel for schedule(static)
  for (long n = 0; n < N; n++) {
    float *o = out + n * M;
    for (long m = 0; m < M; m++) o[m] = 0;
    for (long t = 0; t < T; t++) {
      const float x = xi[n * T + t], yt = y[n * T + t];
      for (long m = 0; m < M; m++) {
        float a = x - theta[m], depth = theta[M + m], d2 = a * a + depth * depth;
        float r = yt - theta[2 * M + m] * depth / (d2 * sqrtf(d2));
        o[m] += -0.5f * r * r - 0.91893853f;  // log(2π)/2
      }
    }
  }
}

// theta [2][M] = m, l; xi [N][T][1], y [N][T][2], out [N][M]
void pendulum(long N, long T, long M, const float *restrict theta, const float *restrict xi, const float *restrict y,
              float *restrict out) {
  const float g = 9.81f, dt = 0.05f, sd = sqrtf(dt) * 0.1f, norm = 2 * (logf(sd) + 0.91893853f);
#pragma omp parallel for schedule(static)
  for (long n = 0; n < N; n++) {
    float *o = out + n * M;
    for (long m = 0; m < M; m++) o[m] = 0;
    for (long t = 0; t < T; t++) {
      const float *yt = y + (n * T + t) * 2, zero[2] = {0, 0}, *s = t ? yt - 2 : zero, dq = s[1], sin1 = sinf(s[0]);
      const float force = 3 * (xi[n * T + t] - 0.1f * dq), r1 = (yt[0] - s[0] - dt * dq) / sd, fixed = -0.5f * r1 * r1 - norm;
      for (long m = 0; m < M; m++) {
        float mass = theta[m], l = theta[M + m];
        float r2 = (yt[1] - dq - dt * (-1.5f * g / l * sin1 + force / (mass * l * l))) / sd;
        o[m] += fixed - 0.5f * r2 * r2;
      }
    }
  }
}

// theta [3][M] = l, mp, mc; xi [N][T][1], y [N][T][4] = s, q, ds, dq, out [N][M]
void cart_pole(long N, long T, long M, const float *restrict theta, const float *restrict xi, const float *restrict y,
               float *restrict out) {
  const float g = 9.81f, dt = 0.05f, sd = sqrtf(dt) * 0.1f, norm = 4 * (logf(sd) + 0.91893853f);
#pragma omp parallel for schedule(static)
  for (long n = 0; n < N; n++) {
    float *o = out + n * M;
    for (long m = 0; m < M; m++) o[m] = 0;
    for (long t = 0; t < T; t++) {
      const float *yt = y + (n * T + t) * 4, zero[4] = {0, 0, 0, 0}, *s = t ? yt - 4 : zero;
      const float q = s[1], ds = s[2], dq = s[3], u = xi[n * T + t], sin1 = sinf(q), cos1 = cosf(q);
      const float cart = 0.01f * s[0] + 0.01f * ds, spring = (0.01f * q + 0.01f * dq) * cos1;
      const float r1 = (yt[0] - s[0] - dt * ds) / sd, r2 = (yt[1] - q - dt * dq) / sd;
      const float fixed = -0.5f * (r1 * r1 + r2 * r2) - norm;
      for (long m = 0; m < M; m++) {
        float l = theta[m], mp = theta[M + m], mc = theta[2 * M + m];
        float pole = spring / l, inertia = mc + mp * sin1 * sin1;
        float dds = (u + mp * sin1 * (l * dq * dq + g * cos1) - cart - pole) / inertia;
        float ddq = (-u * cos1 - mp * l * dq * dq * cos1 * sin1 - (mc + mp) * g * sin1 - cart * cos1 - pole * cos1) / (l * inertia);
        float r3 = (yt[2] - ds - dt * dds) / sd, r4 = (yt[3] - dq - dt * ddq) / sd;
        o[m] += fixed - 0.5f * (r3 * r3 + r4 * r4);
      }
    }
  }
}
