"""Programs of others that speak the array API run on tensors of every backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = r"""
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy, sklearn
import ember_ml as em
from ember_ml import ops
from scipy import signal, special, stats
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

backend = sys.argv[1]
em.set_backend("numpy")  # another backend is current: clients must follow the tensors
X, y = make_classification(200, 6, n_informative=4, random_state=0)
a, b = X[:, 0], X[:, 1]
with em.use_backend(backend):
    Xt, at, bt = (ops.asarray(v) for v in (X, a, b))
    yt = ops.asarray(y)
    yf = ops.asarray(y.astype("float64"))
report = {}

def compare(name, got, wanted, tolerance=1e-9):
    assert isinstance(got, em.Tensor), f"{name}: {type(got)}"
    assert got.backend == backend, f"{name}: {got.backend}"
    np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=tolerance, atol=tolerance)
    report[name] = str(got.dtype)

def run(name, function):
    try:
        function()
    except Exception as error:
        report[name] = f"FAILED {type(error).__name__}: {str(error)[:300]}"

def scaler():
    compare("StandardScaler", StandardScaler().fit_transform(Xt), StandardScaler().fit_transform(X))

def pca():
    options = dict(n_components=3, svd_solver="full")
    compare("PCA", PCA(**options).fit_transform(Xt), PCA(**options).fit_transform(X), 1e-8)

def ridge():
    got, wanted = Ridge(solver="svd").fit(Xt, yf), Ridge(solver="svd").fit(X, y.astype(float))
    compare("Ridge", got.predict(Xt), wanted.predict(X), 1e-8)

def logistic():
    options = dict(solver="lbfgs")
    got, wanted = LogisticRegression(**options).fit(Xt, yt), LogisticRegression(**options).fit(X, y)
    compare("LogisticRegression", got.predict_proba(Xt), wanted.predict_proba(X), 1e-4)

def lda():
    got = LinearDiscriminantAnalysis(solver="svd").fit(Xt, yt)
    wanted = LinearDiscriminantAnalysis(solver="svd").fit(X, y)
    compare("LinearDiscriminantAnalysis", got.predict(Xt), wanted.predict(X))

with sklearn.config_context(array_api_dispatch=True):
    run("StandardScaler", scaler)
    run("PCA", pca)
    run("Ridge", ridge)
    run("LogisticRegression", logistic)
    run("LinearDiscriminantAnalysis", lda)

def tensor_of(value):
    if not isinstance(value, np.ndarray):
        return value
    with em.use_backend(backend):
        return ops.asarray(value)

def each(name, function, *inputs, tolerance=1e-9, pick=lambda result: result, **options):
    def go():
        got = pick(function(*map(tensor_of, inputs), **options))
        compare(name, got, pick(function(*inputs, **options)), tolerance)
    run(name, go)

positive = np.abs(a) + 0.1
single = a.astype("float32")
each("stats.zscore", stats.zscore, a)
each("stats.skew", stats.skew, a)
each("stats.kurtosis", stats.kurtosis, a)
each("stats.moment", stats.moment, a, 3)
each("stats.gmean", stats.gmean, positive)
each("stats.tmean", stats.tmean, a)
each("stats.sem", stats.sem, a)
each("stats.variation", stats.variation, a)
each("stats.pearsonr", stats.pearsonr, a, b, pick=lambda r: r.statistic)
each("stats.ttest_ind", stats.ttest_ind, a, b, pick=lambda r: r.pvalue, tolerance=1e-7)
each("stats.ttest_1samp", stats.ttest_1samp, a, 0.1, pick=lambda r: r.statistic)
each("stats.describe", stats.describe, X, pick=lambda r: r.variance)
each("signal.detrend", signal.detrend, a)
each("signal.convolve", signal.convolve, a, b, method="direct")
each("signal.fftconvolve", signal.fftconvolve, single, single, tolerance=1e-3)
each("signal.hilbert", signal.hilbert, single, tolerance=1e-4)
each("special.expit", special.expit, a)
each("special.logsumexp", special.logsumexp, a)
each("special.softmax", special.softmax, X, axis=1)
each("special.log_softmax", special.log_softmax, X, axis=1)
each("special.xlogy", special.xlogy, positive, positive)
each("special.entr", special.entr, positive)
each("special.erf", special.erf, a)
each("special.gammaln", special.gammaln, positive)
print(json.dumps(report))
"""


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax", "mlx"])
def test_scikit_learn_and_scipy(backend: str) -> None:
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM, backend],
        capture_output=True,
        text=True,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        check=False,
    )
    assert out.returncode == 0, out.stderr[-3000:]
    report = json.loads(out.stdout.splitlines()[-1])
    failures = {name: what for name, what in report.items() if what.startswith("FAILED")}
    assert failures == {}
    estimators = {"StandardScaler", "PCA", "Ridge", "LogisticRegression"}
    assert estimators | {"LinearDiscriminantAnalysis"} <= set(report)
    assert len(report) == 5 + 24
