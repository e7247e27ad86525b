// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/agent/services"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// servicesFile holds the intent's Services.
const servicesFile = "services.json"

func (a *Agent) newServices() *services.Services {
	return services.New(services.Options{
		Log: a.log, Config: a.cfg.Services, Mapping: a.cfg.Mapping, Node: a.opts.NodeName, File: a.cfg.StateFile(servicesFile),
		Intent: a.intent, View: a.view, Events: a.opts.Events,
		Applied:     func(ctx context.Context, revision uint64) error { return a.flows.wait(ctx, revision) },
		Connections: connections{a}, Changed: a.servicesChanged, Observe: a.metrics.serviceSync, Healthy: a.forwards,
	})
}

// watchServices makes intent of Services, and remembers it.
func (a *Agent) watchServices(ctx context.Context) error {
	return a.opts.Cluster.WatchServices(ctx, a.services.Updates())
}

// native says whether the bridge balances Services.
func (a *Agent) native() bool { return a.cfg.Services.Mode == config.NativeServices }

// serviceMode is the configuration's mode, as intent has it.
func (a *Agent) serviceMode() intent.ServiceMode { return intent.ServiceMode(a.cfg.Services.Mode) }

// loadServices makes intent of the Services that were known when the agent ran last. What cannot be read is left out: the
// API tells of it again.
func (a *Agent) loadServices(tx *intent.Tx) {
	remembered, err := services.Load(a.cfg.StateFile(servicesFile))
	if err != nil {
		a.log.Error("not all Services are remembered", "err", err)
	}
	ranges := remembered.Ranges
	for _, p := range a.cfg.Services.CIDRs {
		ranges = append(ranges, intent.ServiceRange{Prefix: p})
	}
	tx.ReplaceServiceRanges(ranges)
	if a.native() {
		tx.ReplaceServices(remembered.Services)
	}
}

// servicesChanged has those follow who have to know of a change: endpoints are not the host kernel's business, and only
// addresses of load balancers have to be answered for.
func (a *Agent) servicesChanged(before, after *intent.State) {
	a.hostFollows()
	for _, key := range intent.Diff(before, after).Services {
		old, _ := before.Services().Get(key)
		now, _ := after.Services().Get(key)
		if balanced(old) || balanced(now) {
			select {
			case a.announceWake <- struct{}{}:
			default:
			}
			return
		}
	}
}

// hostFollows has the host's kernel follow what has changed of Services or pools.
func (a *Agent) hostFollows() {
	if a.hostServices.follow(a.intent.State(), a.view.State().PoolList()) {
		a.kick()
	}
}

// balanced says whether a Service has an address of a load balancer.
func balanced(v intent.Service) bool {
	return slices.ContainsFunc(v.Ports, func(p intent.ServicePort) bool { return len(p.LoadBalancerIPs) > 0 })
}

// endpointCount is how many endpoints all ports of all Services have.
func endpointCount(s *intent.State) int {
	n := 0
	for v := range s.Services().All() {
		for _, p := range v.Ports {
			n += len(p.Endpoints)
		}
	}
	return n
}

// tellServices tells of this node's object.
func (a *Agent) tellServices() {
	for _, n := range a.nodeList() {
		if n.Name == a.opts.NodeName {
			a.services.SetNode(n)
		}
	}
}

// nodeList are the newest Node objects.
func (a *Agent) nodeList() []*corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes
}

// servicesTimeout is how long an agent that starts waits for the API's lists of Services, rather than have the switch
// follow for a moment what it remembers of them. The switch goes on as before meanwhile.
const servicesTimeout = 10 * time.Second

// awaitServices waits for the API's Services, unless it does not answer.
func (a *Agent) awaitServices(ctx context.Context) {
	if !a.native() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, servicesTimeout)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-a.services.Ready():
	case <-a.services.Away():
	}
}

// forwards says why this node does not forward packets for Services.
func (a *Agent) forwards() error {
	return a.conditions.first(func(k condition) bool { return limiting[k] })
}

// connections forgets what conntrack knows of the bridge. hostnet does it for what the host's kernel has translated.
type connections struct{ *Agent }

var _ services.Connections = connections{}

// Forget implements services.Connections. Its caller has seen the flows on the switch. The datapath follows them a little
// later: a client that is forgotten meanwhile may be sent to the same endpoint again. So it is forgotten at once, and once
// more when the datapath's flows have been looked through: by a round that began after the call, of which the end of the
// second round from now on tells.
func (c connections) Forget(ctx context.Context, which []services.Balanced) error {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	if err := c.flush(ctx, which); err != nil {
		return err
	}
	for range 2 {
		if _, err := c.vswitchd.Call(ctx, "revalidator/wait"); err != nil {
			return fmt.Errorf("the datapath's flows: %w", err)
		}
	}
	return c.flush(ctx, which)
}

func (c connections) flush(ctx context.Context, which []services.Balanced) error {
	conn, err := c.sw.Conn(ctx)
	if err != nil {
		return err
	}
	zone := uint16(intent.DefaultRouter)
	messages := make([]openflow.Message, 0, len(which))
	for _, b := range which {
		m := &openflow.CTFlush{Zone: &zone, Proto: uint8(intent.UDP)}
		m.Orig.Dst, m.Orig.DstPort = b.Service.Addr(), b.Service.Port()
		m.Reply.Src, m.Reply.SrcPort = b.Endpoint.Address, b.Endpoint.Port
		messages = append(messages, m)
	}
	if err := conn.Do(ctx, messages); err != nil {
		return fmt.Errorf("connections of UDP Services: %w", err)
	}
	return nil
}
