// SPDX-License-Identifier: Apache-2.0

package nexthops

import "github.com/prometheus/client_golang/prometheus"

var nextHopsDesc = prometheus.NewDesc("coelan_next_hops",
	"Next hops on external Networks that are checked, by Network and state: up or down.",
	[]string{"network", "state"}, nil)

// stateCollector counts Targets.
type stateCollector struct{ prober *Prober }

func (c *stateCollector) Describe(out chan<- *prometheus.Desc) { out <- nextHopsDesc }

func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	for network, count := range c.prober.counts() {
		for down, state := range map[bool]string{true: "down", false: "up"} {
			out <- prometheus.MustNewConstMetric(nextHopsDesc, prometheus.GaugeValue, float64(count[down]),
				network, state)
		}
	}
}

// counts are the numbers of Targets by Network, and by whether they are down.
func (p *Prober) counts() map[string]map[bool]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]map[bool]int{}
	for _, t := range p.targets {
		if all[t.Network] == nil {
			all[t.Network] = map[bool]int{}
		}
		all[t.Network][t.down]++
	}
	return all
}
