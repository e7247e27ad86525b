// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// latencyBuckets are in seconds: from half a millisecond to half a minute.
var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// metrics are those of the leader; docs/develop/ovn.md describes them.
type metrics struct {
	collectors     []prometheus.Collector
	rows, problems prometheus.Gauge
	compile, write prometheus.Histogram
}

func newMetrics(r *Runner) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets})
	}
	m := &metrics{
		rows:     gauge("coelan_ovn_rows", "Rows that OVN's northbound database is to have."),
		problems: gauge("coelan_ovn_problems", "What objects ask for and OVN does not do."),
		compile:  histogram("coelan_ovn_compile_seconds", "Time to make rows of a change of intent."),
		write: histogram("coelan_ovn_write_seconds",
			"Time from a change of intent until OVN's northbound database has all that is wanted."),
	}
	m.collectors = []prometheus.Collector{
		m.rows, m.problems, m.compile, m.write,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "coelan_ovn_transactions_total", Help: "Transactions that OVN's northbound database took.",
		}, func() float64 { return float64(r.client.Transactions()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coelan_ovn_lag_seconds",
			Help: "For how long OVN's northbound database has not been as wanted; 0: it is.",
		}, func() float64 { return r.lag().Seconds() }),
	}
	return m
}

func (m *metrics) register() {
	for _, c := range m.collectors {
		ctrlmetrics.Registry.MustRegister(c)
	}
}

func (m *metrics) unregister() {
	for _, c := range m.collectors {
		ctrlmetrics.Registry.Unregister(c)
	}
}

func (m *metrics) compiled(took time.Duration, rows, problems int) {
	m.compile.Observe(took.Seconds())
	m.rows.Set(float64(rows))
	m.problems.Set(float64(problems))
}

func (m *metrics) written(took time.Duration) { m.write.Observe(took.Seconds()) }
