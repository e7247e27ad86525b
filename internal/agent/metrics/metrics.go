// SPDX-License-Identifier: Apache-2.0

// Package metrics has the Prometheus metrics of an agent's own, beside those of its backend;
// docs/operate/metrics.md describes each.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/version"
)

// Options are what metrics are read from.
type Options struct {
	Node       string
	Intent     *intent.Store
	Conditions *conditions.Set
	// Announced is what this node announces.
	Announced func() announce.Status
	// Controlled says whether a controller is connected; nil: policies are not enforced.
	Controlled func() bool
}

// Metrics are one agent's.
type Metrics struct {
	Registry *prometheus.Registry

	requests *prometheus.HistogramVec
	repairs  prometheus.Counter
	sweeps   *prometheus.CounterVec
	services prometheus.Histogram
	policies prometheus.Histogram // nil: they are not enforced
}

// New makes and registers them.
func New(o Options) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coelan_cni_request_duration_seconds", Buckets: backend.LatencyBuckets,
			Help: "Time of the agent's part of CNI requests, by command and CNI error code (0: success).",
		}, []string{"command", "code"}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_port_repairs_total", Help: "Ports of running pods that had to be made again.",
		}),
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_leftovers_removed_total", Help: "Things that belonged to no pod and were removed, by kind.",
		}, []string{"kind"}),
	}
	m.services = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "coelan_service_sync_duration_seconds", Buckets: backend.LatencyBuckets,
		Help: "Time from an event about a Service or its endpoints to the flows that follow from it.",
	})
	m.Registry.MustRegister(m.services, m.requests, m.repairs, m.sweeps, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registerViews(o)
	if o.Controlled != nil {
		m.registerPolicies(o)
	}
	return m
}

// registerViews adds what is read from the agent when it is asked for.
func (m *Metrics) registerViews(o Options) {
	gauge := backend.Gauges(m.Registry)
	gauge("coelan_ports", "Pods' ports of this node.", func() float64 {
		n := 0
		for range o.Intent.State().PortsAt(o.Node) {
			n++
		}
		return float64(n)
	})
	gauge("coelan_networks", "Networks in effect on this node, the default one included.",
		func() float64 { return float64(o.Intent.State().Networks().Len()) })
	gauge("coelan_services", "Services that the bridge balances.", func() float64 {
		return float64(o.Intent.State().NodeServices().Len())
	})
	gauge("coelan_service_endpoints", "Endpoints of all ports of these Services.", func() float64 {
		return float64(endpointCount(o.Intent.State()))
	})
	gauge("coelan_nodes", "Nodes of the cluster, this one included.", func() float64 {
		return float64(o.Intent.State().Nodes().Len())
	})
	gauge("coelan_announced_addresses", "Load balancers' addresses that this node answers for.",
		func() float64 { return float64(len(o.Announced().Owned)) })
	gauge("coelan_announcing_nodes",
		"Nodes whose agents take part in who answers for load balancers' addresses, this one included.",
		func() float64 { return float64(len(o.Announced().Alive)) })
	m.Registry.MustRegister(&conditionCollector{o.Conditions}, &buildCollector{o.Intent})
}

// registerPolicies adds what there is to see of policies.
func (m *Metrics) registerPolicies(o Options) {
	gauge := backend.Gauges(m.Registry)
	gauge("coelan_policy_rules", "Rules of policies that this node's ports need.", func() float64 {
		return float64(o.Intent.State().Rules().Len())
	})
	gauge("coelan_policy_peers", "Addresses that these rules select.", func() float64 {
		return float64(o.Intent.State().Peers().Len())
	})
	gauge("coelan_policy_connected", "1 if a controller tells this node of changes of policies.", func() float64 {
		if o.Controlled() {
			return 1
		}
		return 0
	})
	m.policies = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "coelan_policy_sync_duration_seconds", Buckets: backend.LatencyBuckets,
		Help: "Time from a controller's word about policies to the flows that follow from it.",
	})
	m.Registry.MustRegister(m.policies)
}

// Request counts a call of the CNI plugin's.
func (m *Metrics) Request(command string, code uint, took time.Duration) {
	m.requests.WithLabelValues(command, strconv.FormatUint(uint64(code), 10)).Observe(took.Seconds())
}

// ServiceSync notes how long a change of a Service took.
func (m *Metrics) ServiceSync(took time.Duration) { m.services.Observe(took.Seconds()) }

// Repaired counts ports that were made again.
func (m *Metrics) Repaired(n int) { m.repairs.Add(float64(n)) }

// Swept counts things that belonged to no pod and were removed.
func (m *Metrics) Swept(kind string, n int) { m.sweeps.WithLabelValues(kind).Add(float64(n)) }

// PolicySync notes how long a change of policies took.
func (m *Metrics) PolicySync(took time.Duration) { m.policies.Observe(took.Seconds()) }

// conditionCollector shows each condition as 1 (met) or 0.
type conditionCollector struct{ conditions *conditions.Set }

var conditionDesc = prometheus.NewDesc("coelan_condition", "Conditions for attaching pods: 1 if met.",
	[]string{"condition"}, nil)

// Describe implements prometheus.Collector.
func (c *conditionCollector) Describe(ch chan<- *prometheus.Desc) { ch <- conditionDesc }

// Collect implements prometheus.Collector.
func (c *conditionCollector) Collect(ch chan<- prometheus.Metric) {
	for name, reason := range c.conditions.All() {
		met := 0.0
		if reason == "" {
			met = 1
		}
		ch <- prometheus.MustNewConstMetric(conditionDesc, prometheus.GaugeValue, met, name)
	}
}

// buildCollector shows what runs as labels of a constant.
type buildCollector struct{ intent *intent.Store }

var buildDesc = prometheus.NewDesc("coelan_build_info", "What runs on this node; always 1.",
	[]string{"version", "node", "datapath", "encapsulation"}, nil)

// Describe implements prometheus.Collector.
func (c *buildCollector) Describe(ch chan<- *prometheus.Desc) { ch <- buildDesc }

// Collect implements prometheus.Collector.
func (c *buildCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.intent.State().Local()
	ch <- prometheus.MustNewConstMetric(buildDesc, prometheus.GaugeValue, 1,
		version.String(), l.Node, string(l.Datapath), string(l.Encapsulation))
}

// endpointCount is how many endpoints all ports of all Services have.
func endpointCount(s *intent.State) int {
	n := 0
	for v := range s.NodeServices().All() {
		for _, p := range v.Ports {
			n += len(p.Endpoints)
		}
	}
	return n
}
