// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxRuleSeries is how many rules have metrics of their own; what others decide is added up under the policy "others". There
// may be more rules than a monitoring system bears.
const maxRuleSeries = 1000

// policyCollector shows what policies have decided.
type policyCollector struct {
	stats func(ctx context.Context) ([]PolicyStat, error)

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

// bounded leaves as many as may have metrics of their own, those that had them before first, and the sums of the others.
func (c *policyCollector) bounded(stats []PolicyStat) []PolicyStat {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, others := map[string]bool{}, map[string]*PolicyStat{}
	for _, s := range stats {
		if key := s.seriesKey(); c.seen[key] {
			now[key] = true
		}
	}
	var list []PolicyStat
	for _, s := range stats {
		key := s.seriesKey()
		if now[key] || len(now) < maxRuleSeries {
			now[key] = true
			list = append(list, s)
			continue
		}
		o := others[s.Direction+s.Decision]
		if o == nil {
			o = &PolicyStat{Direction: s.Direction, Decision: s.Decision, others: true}
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

func (s PolicyStat) seriesKey() string { return strings.Join(s.labels(), "\x00") }

// labels are the values of ruleLabels. Where no rule decides, the policies are named that allow nothing, and the rule is 0;
// where Ports are closed, no policy.
func (s PolicyStat) labels() []string {
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

// registerPolicies adds what there is to see of policies.
func (m *metrics) registerPolicies(a *Agent) {
	gauge := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("coelan_policy_rules", "Rules of policies that this node's ports need.", func() float64 { return float64(a.intent.State().Rules().Len()) })
	gauge("coelan_policy_peers", "Addresses that these rules select.", func() float64 { return float64(a.intent.State().Peers().Len()) })
	gauge("coelan_policy_closed_ports", "Ports that are closed because their policies are not known, or cannot be put into effect.",
		func() float64 { return float64(len(a.policyStatus(a.intent.State()).Closed)) })
	gauge("coelan_policy_connected", "1 if a controller tells this node of changes of policies.", func() float64 {
		if a.policies != nil && a.policies.Status().Connected {
			return 1
		}
		return 0
	})
	m.policies = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "coelan_policy_sync_duration_seconds", Buckets: latencies,
		Help: "Time from a controller's word about policies to the flows that follow from it.",
	})
	m.registry.MustRegister(m.policies, &policyCollector{stats: a.policyStats})
}

func (m *metrics) policySync(took time.Duration) { m.policies.Observe(took.Seconds()) }
