// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/agentapi"
)

// maxRuleSeries is how many rules have metrics of their own; what others decide is added up under
// the policy "others". There may be more rules than a monitoring system bears.
const maxRuleSeries = 1000

// policyCollector shows what policies have decided.
type policyCollector struct {
	stats func(ctx context.Context) ([]agentapi.PolicyStat, error)

	mu   sync.Mutex
	seen map[string]bool // the rules that have metrics of their own
}

var ruleLabels = []string{"kind", "namespace", "policy", "direction", "rule", "decision"}

var (
	rulePacketsDesc = prometheus.NewDesc("coelan_policy_rule_packets_total",
		"Packets that a rule of a policy has decided about on this node, in the direction in which their connections began.", ruleLabels, nil)
	ruleBytesDesc = prometheus.NewDesc("coelan_policy_rule_bytes_total", "Bytes of these packets.", ruleLabels, nil)
)

// Describe implements prometheus.Collector.
func (c *policyCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- rulePacketsDesc
	ch <- ruleBytesDesc
}

// Collect implements prometheus.Collector. While the switch is away there is nothing to show.
func (c *policyCollector) Collect(ch chan<- prometheus.Metric) {
	stats, err := c.stats(context.Background())
	if err != nil {
		return
	}
	for _, s := range c.bounded(stats) {
		values := s.labels()
		ch <- prometheus.MustNewConstMetric(rulePacketsDesc, prometheus.CounterValue, float64(s.Packets), values...)
		ch <- prometheus.MustNewConstMetric(ruleBytesDesc, prometheus.CounterValue, float64(s.Bytes), values...)
	}
}

// bounded leaves as many as may have metrics of their own, those that had them before first, and
// the sums of the others.
func (c *policyCollector) bounded(stats []agentapi.PolicyStat) []ruleSeries {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, others := map[string]bool{}, map[string]*ruleSeries{}
	for _, s := range stats {
		if key := (ruleSeries{PolicyStat: s}).key(); c.seen[key] {
			now[key] = true
		}
	}
	var list []ruleSeries
	for _, stat := range stats {
		s := ruleSeries{PolicyStat: stat}
		key := s.key()
		if now[key] || len(now) < maxRuleSeries {
			now[key] = true
			list = append(list, s)
			continue
		}
		o := others[s.Direction+s.Decision]
		if o == nil {
			o = &ruleSeries{PolicyStat: agentapi.PolicyStat{Direction: s.Direction, Decision: s.Decision}, others: true}
			others[s.Direction+s.Decision] = o
		}
		o.Packets += s.Packets
		o.Bytes += s.Bytes
	}
	c.seen = now
	for _, o := range others {
		list = append(list, *o)
	}
	return list
}

// ruleSeries is what has metrics of its own.
type ruleSeries struct {
	agentapi.PolicyStat
	others bool // the sum of all rules without metrics of their own
}

func (s ruleSeries) key() string { return strings.Join(s.labels(), "\x00") }

// labels are the values of ruleLabels. Where no rule decides, the policies are named that allow
// nothing, and the rule is 0; where Ports are closed, no policy.
func (s ruleSeries) labels() []string {
	var kind, namespace string
	var names []string
	for _, p := range s.Policies {
		kind, namespace = string(p.Kind), p.Namespace
		names = append(names, p.Name)
	}
	if s.others {
		names = []string{"others"}
	}
	return []string{kind, namespace, strings.Join(names, ","), s.Direction, strconv.Itoa(s.Rule), s.Decision}
}
