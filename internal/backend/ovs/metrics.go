// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/bridge"
)

// metrics are the backend's part of the agent's Prometheus metrics;
// docs/operate/metrics.md describes each.
type metrics struct {
	syncSeconds *prometheus.HistogramVec
	syncErrors  prometheus.Counter
	refusals    *prometheus.CounterVec
	flowChanges *prometheus.CounterVec
	flows       prometheus.Gauge
	reconnects  *prometheus.CounterVec
	tooBig      *prometheus.CounterVec
	dhcp        *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		syncSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coelan_flow_sync_duration_seconds", Buckets: backend.LatencyBuckets,
			Help: "Time to bring the flows on the bridge to a new intent, by step: compile or write.",
		}, []string{"step"}),
		syncErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_flow_sync_errors_total", Help: "Flow synchronisations that failed.",
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_object_refusals_total", Help: "Objects that were left out because the switch refused their flows, by kind.",
		}, []string{"kind"}),
		flowChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_flow_changes_total", Help: "Flows, groups and meters written to the bridge, by operation.",
		}, []string{"operation"}),
		flows: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coelan_flows", Help: "Flows on the bridge.",
		}),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_ovs_connections_total", Help: "Connections made to Open vSwitch, by kind: database or switch.",
		}, []string{"kind"}),
	}
	m.tooBig = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coelan_too_big_packets_total",
		Help: "Packets too big for their way to another node that the agent has got, by outcome: answered, fragmented or dropped.",
	}, []string{"outcome"})
	m.dhcp = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coelan_dhcp_requests_total",
		Help: "Requests of machines about their addresses, by protocol and outcome: answered, refused, released, declined or ignored.",
	}, []string{"protocol", "outcome"})
	r.MustRegister(m.syncSeconds, m.syncErrors, m.refusals, m.flowChanges, m.flows, m.reconnects, m.tooBig, m.dhcp)
	return m
}

// registerViews adds what is read from the backend when it is asked for.
func (b *Backend) registerViews() {
	gauge := backend.Gauges(b.Metrics)
	gauge("coelan_released_addresses",
		"Addresses of pods that are gone whose connections conntrack has not forgotten yet.",
		func() float64 {
			waiting, _ := b.tracking.flusher.Status()
			return float64(waiting)
		})
	gauge("coelan_tunnels", "Nodes that are reached by a tunnel.", func() float64 {
		return float64(len(tunnelPeers(b.Intent.State())))
	})
	b.Metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "coelan_host_writes_total", Help: "Writes to the host's interfaces, routes, settings and nftables.",
	}, func() float64 { return float64(b.host.kernel.Status().Changes) }))
	b.Metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "coelan_egress_takeovers_total",
		Help: "How often this node became active for an external address that one of several nodes is active for.",
	}, func() float64 { return float64(b.external.egress.takeovers()) }))
	b.Metrics.MustRegister(&refusedCollector{b.flows.quarantine}, &connectionCollector{b.tracking},
		&externalCollector{b.external})
	if b.policed() {
		gauge("coelan_policy_closed_ports",
			"Ports that are closed because their policies are not known, or cannot be put into effect.",
			func() float64 { return float64(len(closed(b.flows.effective(), b.Node))) })
		b.Metrics.MustRegister(&policyCollector{stats: b.PolicyStats})
	}
}

func (m *metrics) sync(compile time.Duration, res bridge.Result, err error) {
	m.syncSeconds.WithLabelValues("compile").Observe(compile.Seconds())
	m.syncSeconds.WithLabelValues("write").Observe(res.Duration.Seconds())
	if err != nil {
		m.syncErrors.Inc()
		return
	}
	m.flowChanges.WithLabelValues("add").Add(float64(res.Added))
	m.flowChanges.WithLabelValues("change").Add(float64(res.Changed))
	m.flowChanges.WithLabelValues("delete").Add(float64(res.Deleted))
	m.flows.Set(float64(res.Flows))
}

func (m *metrics) connected(kind string) { m.reconnects.WithLabelValues(kind).Inc() }
