// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/backend/ovs/ctflush"
	"coelan.io/coelan/internal/backend/ovs/ctlimit"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/streams"
	"coelan.io/coelan/internal/config"
)

// tracking is the upkeep of the datapath's connection table.
type tracking struct {
	tracker
	flows   *flows
	flusher *ctflush.Flusher
	limiter *ctlimit.Limiter
	streams *streams.Follower // nil: policies are not enforced
}

// newTracking makes the parts of the upkeep. The limiter limits, the flusher forgets released
// addresses, and the streams have UDP follow policies.
func newTracking(o backend.Options, t tracker, f *flows) *tracking {
	r := &releases{tracker: t, applied: f.wait}
	o.Attachments.KeepReleased(r.released)
	tracking := &tracking{
		tracker: t, flows: f, flusher: ctflush.New(o.Log, o.Attachments, r),
		limiter: ctlimit.New(o.Log, o.Config.Conntrack, o.Intent, t),
	}
	if o.Config.Policy.Mode == config.EnforcedPolicies {
		tracking.streams = streams.New(streams.Options{Log: o.Log, Intent: o.Intent, Applied: f.wait, Connections: t})
	}
	return tracking
}

// parts are what works on the table until its context ends.
func (t *tracking) parts() []func(context.Context) error {
	list := []func(context.Context) error{t.flusher.Run, t.limiter.Run}
	if t.streams != nil {
		list = append(list, t.streams.Run)
	}
	return list
}

// usage is how full the connection table is. While the switch is away there is nothing
// to see.
func (t *tracking) usage(ctx context.Context) (ctlimit.Usage, error) {
	if !t.flows.connected() {
		return ctlimit.Usage{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	return t.limiter.Usage(ctx)
}

// translations are the connections by gateways of Routers, by the Router's name. Where connections
// are not limited, Open vSwitch does not count them: those of the kernel's table are counted one by
// one, and of the userspace datapath's nothing is known.
func (t *tracking) translations(ctx context.Context) (map[string]agentapi.Translations, error) {
	usage, err := t.usage(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]agentapi.Translations{}
	for _, z := range usage.Zones {
		if z.Gateway {
			found[z.Router] = agentapi.Translations{Count: z.Entries, Limit: z.Limit}
		}
	}
	if len(found) > 0 || !t.inKernel() {
		return found, nil
	}
	count, err := conntrack.Kernel{}.CountZones(ctx)
	if err != nil {
		return nil, err
	}
	for r := range t.intent.State().Routers().All() {
		found[r.Name] = agentapi.Translations{Count: count[datapath.GatewayZone(r.ID)]}
	}
	return found, nil
}

// compareConnections finds Routers, and a node, that have nearly all connections that they may.
func (c *comparison) compareConnections(ctx context.Context) {
	usage, err := c.tracking.usage(ctx)
	if err != nil {
		c.findings.Add("conntrack", "table", "how many connections there are is not known: %v", err)
	}
	findings := usage.Findings()
	for _, object := range slices.Sorted(maps.Keys(findings)) {
		c.findings.Add("conntrack", object, "%s", findings[object])
	}
}

// connectionCollector shows how full the connection table is.
type connectionCollector struct{ tracking *tracking }

var (
	routerEntriesDesc = prometheus.NewDesc("coelan_conntrack_entries",
		"Connections of a Router that conntrack remembers on this node, where they are limited.",
		[]string{"router"}, nil)
	routerLimitDesc = prometheus.NewDesc("coelan_conntrack_limit",
		"How many connections conntrack may remember of the Router.", []string{"router"}, nil)
	gatewayEntriesDesc = prometheus.NewDesc("coelan_gateway_translations",
		"Connections by a Router's gateway that conntrack remembers on this node, where they are limited.",
		[]string{"router"}, nil)
	gatewayLimitDesc = prometheus.NewDesc("coelan_gateway_translations_limit",
		"How many connections by the Router's gateway conntrack may remember.", []string{"router"}, nil)
	tableEntriesDesc = prometheus.NewDesc("coelan_conntrack_table_entries",
		"Connections that conntrack remembers on this node.", nil, nil)
	tableLimitDesc = prometheus.NewDesc("coelan_conntrack_table_limit",
		"How many connections conntrack may remember on this node.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *connectionCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- routerEntriesDesc
	ch <- routerLimitDesc
	ch <- gatewayEntriesDesc
	ch <- gatewayLimitDesc
	ch <- tableEntriesDesc
	ch <- tableLimitDesc
}

// Collect implements prometheus.Collector. Routers without connections on this node have no
// metrics, as there may be many; gateways have, as the node has few.
func (c *connectionCollector) Collect(ch chan<- prometheus.Metric) {
	usage, err := c.tracking.usage(context.Background())
	if err != nil || usage.Size == 0 {
		return
	}
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(tableEntriesDesc, usage.Entries)
	gauge(tableLimitDesc, usage.Size)
	for _, z := range usage.Zones {
		switch {
		case z.Gateway:
			gauge(gatewayEntriesDesc, z.Entries, z.Router)
			gauge(gatewayLimitDesc, z.Limit, z.Router)
		case z.Entries > 0:
			gauge(routerEntriesDesc, z.Entries, z.Router)
			gauge(routerLimitDesc, z.Limit, z.Router)
		}
	}
}
