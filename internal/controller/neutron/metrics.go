// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"coelan.io/coelan/internal/backend/neutron/cloud"
)

// metrics are those of the leader; docs/develop/controller.md describes them.
type metrics struct {
	runner                            *Runner
	calls, away, problems, limit, use *prometheus.Desc
}

func newMetrics(r *Runner) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("coelan_neutron_"+name, help, labels, nil)
	}
	return &metrics{
		runner:   r,
		calls:    desc("calls_total", "Calls of Neutron's API, and of keystone's about projects."),
		away:     desc("away_seconds", "For how long Neutron could not be used; 0: it can."),
		problems: desc("problems", "What objects ask for and Neutron does not do."),
		limit: desc("quota_limit", "What a project may have of a resource; without a series if there is no limit.",
			"project", "resource"),
		use: desc("quota_used", "What a project has of a resource that it may not have any number of.",
			"project", "resource"),
	}
}

func (m *metrics) register() { ctrlmetrics.Registry.MustRegister(m) }

func (m *metrics) unregister() { ctrlmetrics.Registry.Unregister(m) }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.calls, m.away, m.problems, m.limit, m.use} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	state := m.runner.measured()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	send(m.calls, prometheus.CounterValue, float64(m.runner.Calls()))
	send(m.away, prometheus.GaugeValue, state.away.Seconds())
	send(m.problems, prometheus.GaugeValue, float64(state.problems))
	for _, q := range state.quotas {
		if q.Limit >= 0 {
			send(m.limit, prometheus.GaugeValue, float64(q.Limit), q.Project, q.Resource)
			send(m.use, prometheus.GaugeValue, float64(q.Used), q.Project, q.Resource)
		}
	}
}

// measured is what metrics have of a Runner.
type measured struct {
	away     time.Duration
	problems int
	quotas   []cloud.Quota
}

func (r *Runner) measured() measured {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := measured{problems: len(r.cloud.list), quotas: r.quotas}
	if r.cloud.err != nil {
		m.away = time.Since(r.compared.since)
	}
	return m
}
