// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"coelan.io/coelan/internal/watcher/mirror"
)

var (
	lag = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "coelan_watcher_lag_seconds", Help: "Time from a change in the cluster until the controller had it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 10), //nolint:mnd // 1 ms to 4 minutes
	}, []string{"list"})
	connectedDesc = prometheus.NewDesc("coelan_watcher_connected", "1 if the controller can be reached.", nil, nil)
	oldestDesc    = prometheus.NewDesc("coelan_watcher_oldest_change_seconds",
		"Age of the oldest change that the controller does not have.", nil, nil)
	entriesDesc = prometheus.NewDesc("coelan_watcher_entries",
		"Entries of a list, by state: wanted, pending (to be written or deleted) and refused (of the pending ones).",
		[]string{"list", "state"}, nil)
)

// progress is a Mirror's, counted for each scrape.
type progress struct{ *mirror.Mirror }

// register replaces what an earlier watcher of this process has left.
func register(m *mirror.Mirror) {
	for _, c := range []prometheus.Collector{progress{m}, lag} {
		metrics.Registry.Unregister(c)
		metrics.Registry.MustRegister(c)
	}
}

// Describe implements prometheus.Collector.
func (progress) Describe(to chan<- *prometheus.Desc) {
	to <- connectedDesc
	to <- oldestDesc
	to <- entriesDesc
}

// Collect implements prometheus.Collector.
func (p progress) Collect(to chan<- prometheus.Metric) {
	s := p.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	connected := 0.0
	if s.Connected {
		connected = 1
	}
	gauge(connectedDesc, connected)
	gauge(oldestDesc, s.OldestSeconds)
	for _, l := range s.Lists {
		gauge(entriesDesc, float64(l.Wanted), l.List, "wanted")
		gauge(entriesDesc, float64(l.Pending), l.List, "pending")
		gauge(entriesDesc, float64(l.Refused), l.List, "refused")
	}
}
