// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics are of one server; docs/develop/policy-distribution.md describes each.
type metrics struct {
	agents  prometheus.GaugeFunc
	items   prometheus.Counter
	bytes   prometheus.Counter
	reviews *prometheus.CounterVec
	// unreviewed tokens are refused by their claims, refused connections by reason.
	unreviewed prometheus.Counter
	refused    *prometheus.CounterVec
	behind     prometheus.Counter // agents that were turned away
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
		unreviewed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_policy_unreviewed_tokens_total", Help: "Tokens that were refused without a review.",
		}),
		behind: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_policy_behind_total", Help: "Agents that were turned away because they knew more than this controller.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_policy_refused_connections_total",
			Help: "Connections that were closed before a call was authenticated, by reason.",
		}, []string{"reason"}),
	}
}

// gate bounds the connections of a listener and counts those that it closes.
func (m *metrics) gate(l net.Listener) *Gate {
	return NewGate(l, func(reason string) { m.refused.WithLabelValues(reason).Inc() })
}

// register replaces what an earlier server of this process has left.
func (m *metrics) register(r prometheus.Registerer) {
	for _, c := range []prometheus.Collector{m.agents, m.items, m.bytes, m.reviews, m.unreviewed, m.refused, m.behind} {
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
