// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"coelan.io/coelan/internal/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/version"
)

// metrics are the agent's Prometheus metrics; docs/metrics.md describes each.
type metrics struct {
	registry *prometheus.Registry

	requests    *prometheus.HistogramVec
	syncSeconds *prometheus.HistogramVec
	syncErrors  prometheus.Counter
	flowChanges *prometheus.CounterVec
	flows       prometheus.Gauge
	repairs     prometheus.Counter
	sweeps      *prometheus.CounterVec
	reconnects  *prometheus.CounterVec
	services    prometheus.Histogram
	policies    prometheus.Histogram // nil: they are not enforced
}

// latencies are buckets from a millisecond to half a minute.
var latencies = []float64{.001, .0025, .005, .01, .02, .03, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func newMetrics(a *Agent) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coelan_cni_request_duration_seconds", Buckets: latencies,
			Help: "Time of the agent's part of CNI requests, by command and CNI error code (0: success).",
		}, []string{"command", "code"}),
		syncSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coelan_flow_sync_duration_seconds", Buckets: latencies,
			Help: "Time to bring the flows on the bridge to a new intent, by step: compile or write.",
		}, []string{"step"}),
		syncErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_flow_sync_errors_total", Help: "Flow synchronisations that failed.",
		}),
		flowChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_flow_changes_total", Help: "Flows, groups and meters written to the bridge, by operation.",
		}, []string{"operation"}),
		flows: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "coelan_flows", Help: "Flows on the bridge.",
		}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_port_repairs_total", Help: "Ports of running pods that had to be made again.",
		}),
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_leftovers_removed_total", Help: "Things that belonged to no pod and were removed, by kind.",
		}, []string{"kind"}),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_ovs_connections_total", Help: "Connections made to Open vSwitch, by kind: database or switch.",
		}, []string{"kind"}),
	}
	m.services = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "coelan_service_sync_duration_seconds", Buckets: latencies,
		Help: "Time from an event about a Service or its endpoints to the flows that follow from it.",
	})
	m.registry.MustRegister(m.services, m.requests, m.syncSeconds, m.syncErrors, m.flowChanges, m.flows, m.repairs, m.sweeps, m.reconnects,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registerViews(a)
	if a.policed() {
		m.registerPolicies(a)
	}
	return m
}

// registerViews adds what is read from the agent when it is asked for.
func (m *metrics) registerViews(a *Agent) {
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("coelan_ports", "Pods' ports of this node.", func() float64 { return float64(localPorts(a.intent.State())) })
	gauge("coelan_networks", "Networks in effect on this node, the default one included.",
		func() float64 { return float64(a.intent.State().Networks().Len()) })
	gauge("coelan_services", "Services that the bridge balances.", func() float64 { return float64(a.intent.State().Services().Len()) })
	gauge("coelan_service_endpoints", "Endpoints of all ports of these Services.", func() float64 { return float64(endpointCount(a.intent.State())) })
	gauge("coelan_nodes", "Nodes of the cluster, this one included.", func() float64 { return float64(a.intent.State().Nodes().Len()) })
	gauge("coelan_tunnels", "Nodes that are reached by a tunnel.", func() float64 { return float64(len(tunnelPeers(a.intent.State()))) })
	gauge("coelan_announced_addresses", "Load balancers' addresses that this node answers for.",
		func() float64 { return float64(len(a.announced().Owned)) })
	gauge("coelan_announcing_nodes", "Nodes whose agents take part in who answers for load balancers' addresses, this one included.",
		func() float64 { return float64(len(a.announced().Alive)) })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "coelan_host_writes_total", Help: "Writes to the host's interfaces, routes, settings and nftables.",
	}, func() float64 {
		if a.host == nil {
			return 0
		}
		return float64(a.host.Status().Changes)
	}))
	m.registry.MustRegister(&conditionCollector{a.conditions}, &buildCollector{a.intent})
}

func (m *metrics) request(command string, code uint, took time.Duration) {
	m.requests.WithLabelValues(command, strconv.FormatUint(uint64(code), 10)).Observe(took.Seconds())
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

func (m *metrics) serviceSync(took time.Duration) { m.services.Observe(took.Seconds()) }
func (m *metrics) repaired(n int)                 { m.repairs.Add(float64(n)) }
func (m *metrics) swept(kind string, n int)       { m.sweeps.WithLabelValues(kind).Add(float64(n)) }
func (m *metrics) connected(kind string)          { m.reconnects.WithLabelValues(kind).Inc() }

// conditionCollector shows each condition as 1 (met) or 0.
type conditionCollector struct{ conditions *conditions }

var conditionDesc = prometheus.NewDesc("coelan_condition", "Conditions for attaching pods: 1 if met.", []string{"condition"}, nil)

// Describe implements prometheus.Collector.
func (c *conditionCollector) Describe(ch chan<- *prometheus.Desc) { ch <- conditionDesc }

// Collect implements prometheus.Collector.
func (c *conditionCollector) Collect(ch chan<- prometheus.Metric) {
	for name, reason := range c.conditions.all() {
		met := 0.0
		if reason == "" {
			met = 1
		}
		ch <- prometheus.MustNewConstMetric(conditionDesc, prometheus.GaugeValue, met, name)
	}
}

// buildCollector shows what runs as labels of a constant.
type buildCollector struct{ intent *intent.Store }

var buildDesc = prometheus.NewDesc("coelan_info", "What runs on this node; always 1.",
	[]string{"version", "node", "datapath", "encapsulation"}, nil)

// Describe implements prometheus.Collector.
func (c *buildCollector) Describe(ch chan<- *prometheus.Desc) { ch <- buildDesc }

// Collect implements prometheus.Collector.
func (c *buildCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.intent.State().Local()
	ch <- prometheus.MustNewConstMetric(buildDesc, prometheus.GaugeValue, 1,
		version.String(), l.Node, string(l.Datapath), string(l.Encapsulation))
}
