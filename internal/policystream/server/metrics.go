// SPDX-License-Identifier: Apache-2.0

package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics are of one server; docs/policy-distribution.md describes each.
type metrics struct {
	agents  prometheus.GaugeFunc
	items   prometheus.Counter
	bytes   prometheus.Counter
	reviews *prometheus.CounterVec
}

func newMetrics(h *Hub) *metrics {
	return &metrics{
		agents: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coelan_policy_agents", Help: "Agents that are connected to this controller.",
		}, func() float64 { return float64(h.Agents()) }),
		items: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_policy_sent_items_total", Help: "Rules, subjects and peers that agents were sent.",
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_policy_sent_bytes_total", Help: "Bytes of what agents were sent, without what TLS and HTTP add.",
		}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_policy_calls_total", Help: "Calls of agents and other controllers, by the gRPC code of their authentication.",
		}, []string{"code"}),
	}
}

// register replaces what an earlier server of this process has left.
func (m *metrics) register(r prometheus.Registerer) {
	for _, c := range []prometheus.Collector{m.agents, m.items, m.bytes, m.reviews} {
		r.Unregister(c)
		r.MustRegister(c)
	}
}

func (m *metrics) sent(items, bytes int) {
	m.items.Add(float64(items))
	m.bytes.Add(float64(bytes))
}

func (m *metrics) reviewed(err error) {
	code := codes.OK
	if err != nil {
		code = status.Code(err)
	}
	m.reviews.WithLabelValues(code.String()).Inc()
}
