// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// work is what datapaths have done, counted from their flows and statistics.
type work struct {
	upcalls  float64 // packets that no flow matched, and that ovs-vswitchd decided on
	lookups  float64 // of a flow, for each packet and again after each recirculation
	masks    float64 // that were probed for these
	recircs  float64
	tracked  float64 // lookups in conntrack
	unknown  float64 // packets of which conntrack had no entry, and made one
	commits  float64 // of connections to conntrack, also of those that are there already
	natted   float64 // times that conntrack was asked to translate
	rewrites float64 // of header fields
	tunneled float64 // packets sent into tunnels
}

func (w work) minus(o work) work {
	return work{
		w.upcalls - o.upcalls, w.lookups - o.lookups, w.masks - o.masks, w.recircs - o.recircs, w.tracked - o.tracked,
		w.unknown - o.unknown, w.commits - o.commits, w.natted - o.natted, w.rewrites - o.rewrites,
		w.tunneled - o.tunneled,
	}
}

var (
	missedLookups = regexp.MustCompile(`lookups: hit:\d+ missed:(\d+)`)
	maskHits      = regexp.MustCompile(`masks: hit:(\d+)`)
	trackAction   = regexp.MustCompile(`\bct\((?:[^()]|\([^()]*\))*\)|\bct\b[^(]`)
)

// parseWork reads what dpctl/dump-flows and dpctl/show print.
func parseWork(flows, show string) work {
	var w work
	eachFlow(flows, func(packets float64, match, actions string) {
		times := func(n int) float64 { return packets * float64(n) }
		w.lookups += packets
		w.recircs += times(strings.Count(actions, "recirc("))
		w.tunneled += times(strings.Count(actions, "set(tunnel("))
		w.rewrites += times(strings.Count(actions, "set(") - strings.Count(actions, "set(tunnel("))
		w.unknown += times(strings.Count(match, "ct_state(+new"))
		tracked := trackAction.FindAllString(actions, -1)
		w.tracked += times(len(tracked))
		for _, a := range tracked {
			w.commits += times(strings.Count(a, "commit"))
			w.natted += times(strings.Count(a, "nat"))
		}
	})
	for re, sum := range map[*regexp.Regexp]*float64{missedLookups: &w.upcalls, maskHits: &w.masks} {
		for _, m := range re.FindAllStringSubmatch(show, -1) {
			n, _ := strconv.ParseFloat(m[1], 64)
			*sum += n
		}
	}
	return w
}

// readWork reads what the datapaths of nodes have done since their flows are there.
func readWork(ctx context.Context, nodes []*lab.Node) (work, error) {
	var flows, shows strings.Builder
	for _, n := range nodes {
		for command, out := range map[string]*strings.Builder{"dpctl/dump-flows": &flows, "dpctl/show": &shows} {
			text, err := n.OVS.Appctl(ctx, command)
			if err != nil {
				return work{}, err
			}
			out.WriteString(text + "\n")
		}
	}
	return parseWork(flows.String(), shows.String()), nil
}

// profile is the work of one unit of a load.
func (c *contender) profile(ctx context.Context, tr traffic, at netip.AddrPort) (work, error) {
	for _, n := range c.lab.Nodes {
		if _, err := n.OVS.Appctl(ctx, "revalidator/purge"); err != nil {
			return work{}, err
		}
	}
	if err := c.flush(ctx); err != nil {
		return work{}, err
	}
	server, err := probe.Serve(c.server, listening(c.server, at), tr.handle)
	if err != nil {
		return work{}, err
	}
	defer server.Close()
	// All flows are there before the counting begins.
	if _, err := tr.load(ctx, c.client, at, probe.Extent{Units: tr.counted}); err != nil {
		return work{}, err
	}
	before, err := readWork(ctx, c.lab.Nodes)
	if err != nil {
		return work{}, err
	}
	if _, err := tr.load(ctx, c.client, at, probe.Extent{Units: tr.counted}); err != nil {
		return work{}, err
	}
	after, err := readWork(ctx, c.lab.Nodes)
	return after.minus(before), err
}

// profileOf measures what the datapaths of all nodes on the way do for a load, of Coelan and of
// OVN, to a pod and through a Service, on the same node and on another one.
func profileOf(tr traffic) func(context.Context) ([]Result, error) {
	return func(ctx context.Context) ([]Result, error) {
		near, err := profilePair(ctx, tr, "same-node", func(ctx context.Context) (*contender, error) {
			return coelanContender(ctx, config.NativeServices, "")
		}, ovnContender)
		if err != nil {
			return nil, fmt.Errorf("same node: %w", err)
		}
		far, err := profilePair(ctx, tr, "cross-node", crossNodeCoelan, crossNodeOVN)
		if err != nil {
			return nil, fmt.Errorf("another node: %w", err)
		}
		return append(near, far...), nil
	}
}

// profilePair profiles ours and OVN's way to a pod and to a Service.
func profilePair(ctx context.Context, tr traffic, name string,
	starts ...func(context.Context) (*contender, error),
) ([]Result, error) {
	var pair []*contender
	defer func() { closeAll(pair) }()
	for _, start := range starts {
		c, err := start(ctx)
		if pair = append(pair, c); err != nil {
			return nil, err
		}
	}
	var results []Result
	for _, way := range crossNodeWays {
		if way.outside { // there is none of OVN
			continue
		}
		var did [2]work
		for i, c := range pair {
			err := c.await(ctx, way.at(c))
			if err == nil {
				did[i], err = c.profile(ctx, tr, way.at(c))
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
		}
		prefix := fmt.Sprintf("profile-%s-%s-%s", name, way.name, tr.name)
		results = append(results, profiled(prefix, tr, did[0], did[1])...)
	}
	return results, nil
}

// profiled has a line for each kind of work of one unit.
func profiled(name string, tr traffic, ours, reference work) []Result {
	units := float64(tr.counted) * tr.scale * tr.perSecond
	var results []Result
	for _, k := range []struct {
		kind string
		of   func(work) float64
	}{
		{"upcalls", func(w work) float64 { return w.upcalls }},
		{"lookups", func(w work) float64 { return w.lookups }},
		{"masks", func(w work) float64 { return w.masks }},
		{"recirculations", func(w work) float64 { return w.recircs }},
		{"conntrack", func(w work) float64 { return w.tracked }},
		{"unknown", func(w work) float64 { return w.unknown }},
		{"commits", func(w work) float64 { return w.commits }},
		{"nat", func(w work) float64 { return w.natted }},
		{"rewrites", func(w work) float64 { return w.rewrites }},
		{"tunnel", func(w work) float64 { return w.tunneled }},
	} {
		a, b := k.of(ours)/units, k.of(reference)/units
		r := absolute(name+"-"+k.kind, tr.costUnit, a)
		r.Reference = &b
		results = append(results, r)
	}
	return results
}
