// SPDX-License-Identifier: Apache-2.0

// Package policies computes each node's part of the policies, serves it to agents, and writes the
// status of policies.
package policies

import (
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/server"
)

// Distribution is what computes the views of nodes, and what serves them to agents.
type Distribution struct {
	Engine *policy.Publisher[*policy.Engine]
	Hub    *server.Hub
}

// NewDistribution returns one that knows nothing and does not serve yet.
func NewDistribution() *Distribution {
	engine := policy.NewPublisher(policy.NewEngine())
	return &Distribution{Engine: engine, Hub: server.NewHub(engine)}
}

// Options are what policies are computed and served with.
type Options struct {
	Log *slog.Logger
	// Distribution is used by this controller alone.
	Distribution *Distribution
	// Progress follows the watches of the manager's cache.
	Progress *Progress
	// Namespace that Coelan is installed in.
	Namespace string
	// BindAddress serves agents; "0": no agent is served.
	BindAddress string
	// TokenFile has the token that this replica shows the others; empty: it does not ask them.
	TokenFile string
	// Interval is the least time between two looks at the status of policies.
	Interval time.Duration
	// Socket is the unix socket of the diagnostics; empty: none.
	Socket string
	// OVN answers the diagnostics about OVN; nil: the backend is another.
	OVN OVN
	// Neutron answers those about Neutron; nil: the backend is another.
	Neutron Neutron
	// NodeAddress is the address in a node's subnet that pods see its processes by, beside the
	// gateway; nil: there is none.
	NodeAddress func(subnet netip.Prefix) (netip.Addr, bool)
}

// Setup adds to a manager what every replica does, and the status of policies,
// which the leader writes.
func Setup(m manager.Manager, a *reconcile.Access, monitor *heartbeat.Monitor, o Options) (*Feed, error) {
	p := newFeed(o.Log, m.GetCache(), o.Distribution, o.Progress, monitor)
	p.nodeAddress = o.NodeAddress
	p.source = newViewSource(o.Progress, m.GetAPIReader())
	p.engine.Basis, p.hub.Source = p.source.Basis, p.source
	status := &policyStatus{
		Access: a, log: o.Log, policies: p, events: reconcile.EventDedup{Kinds: policyKindNames}, interval: o.Interval,
		loop: monitor.Loop("policy-status"),
	}
	runnables := []manager.Runnable{p, status}
	if o.Socket != "" {
		runnables = append(runnables, &diagnostics{o.Socket, p, o.OVN, o.Neutron})
	}
	if o.BindAddress != "0" {
		api, err := kubernetes.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
		if err != nil {
			return nil, err
		}
		runnables = append(runnables, server.New(server.Options{
			Hub: p.hub, Kubernetes: api, Namespace: o.Namespace, BindAddress: o.BindAddress, TokenFile: o.TokenFile,
			Log:     o.Log,
			Monitor: monitor, Metrics: metrics.Registry,
		}))
	}
	for _, r := range runnables {
		if err := m.Add(r); err != nil {
			return nil, err
		}
	}
	return p, nil
}
