// The likelihoods of two tasks as a C programmer would write them for speed: the same arithmetic as src/scorebed/tasks, with
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
