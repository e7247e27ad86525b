// SPDX-License-Identifier: Apache-2.0

package neighbours

import "github.com/prometheus/client_golang/prometheus"

// metrics are described in docs/operate/metrics.md.
type metrics struct {
	requests      prometheus.Counter
	announcements prometheus.Counter
	packets       *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_neighbour_requests_total",
			Help: "ARP requests and neighbor solicitations made for next hops on external Networks.",
		}),
		announcements: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coelan_external_announcements_total",
			Help: "Frames by which the agent has announced that this node has an address of an external Network.",
		}),
		packets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coelan_neighbour_lost_packets_total",
			Help: "Packets to next hops on external Networks that the agent has dropped, by reason.",
		}, []string{"reason"}),
	}
}

func (m *metrics) lost(reason string, packets int) {
	if packets > 0 {
		m.packets.WithLabelValues(reason).Add(float64(packets))
	}
}

func (m *metrics) register(to prometheus.Registerer, r *Resolver) {
	to.MustRegister(m.requests, m.announcements, m.packets, &stateCollector{r})
}

var neighboursDesc = prometheus.NewDesc("coelan_neighbours",
	"Next hops on external Networks, by Network and state: known or unresolved.", []string{"network", "state"}, nil)

// stateCollector counts entries.
type stateCollector struct{ resolver *Resolver }

func (c *stateCollector) Describe(out chan<- *prometheus.Desc) { out <- neighboursDesc }

func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	for name, count := range c.resolver.counts() {
		for known, state := range map[bool]string{true: "known", false: "unresolved"} {
			out <- prometheus.MustNewConstMetric(neighboursDesc, prometheus.GaugeValue, float64(count[known]),
				name, state)
		}
	}
}

// counts are the numbers of entries by Network, and by whether their MACs are known.
func (r *Resolver) counts() map[string]map[bool]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]map[bool]int{}
	for name, n := range r.networks {
		all[name] = map[bool]int{}
		for _, e := range n.entries {
			all[name][e.known()]++
		}
	}
	return all
}
