// SPDX-License-Identifier: Apache-2.0

// Package backend has what an agent and the backend of its node share. A backend brings
// about on one node what intent says; the interface that it implements is declared by
// its consumer, package agent.
package backend

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/keymutex"
	"coelan.io/coelan/internal/policy"
)

// LatencyBuckets are those of the histograms of an agent and its backend, in seconds: from a
// millisecond to half a minute.
var LatencyBuckets = []float64{.001, .0025, .005, .01, .02, .03, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// Gauges returns a function that registers metrics of an agent or its backend. Each is read by its
// value whenever the metrics are asked for.
func Gauges(r prometheus.Registerer) func(name, help string, value func() float64) {
	return func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
}

// Options are what an agent gives its backend. All are needed.
type Options struct {
	Config config.Config
	// Node is the name of this node.
	Node string
	Log  *slog.Logger
	// Intent is what to bring about; it has the node's uplinks from the start, which do not change.
	// Attachments are the interfaces of this node's Ports.
	Intent      *intent.Store
	Attachments *attachment.Store
	// Interfaces are locked by name while one is attached, detached or repaired.
	Interfaces *keymutex.Mutex
	Conditions *conditions.Set
	Monitor    *heartbeat.Monitor
	Metrics    prometheus.Registerer
	Events     Events
	Hooks      Hooks
}

// Hooks are what a backend tells its agent and asks of it. They do not block, but for Begin.
type Hooks struct {
	// Begin returns when intent is complete enough to replace what is there.
	Begin func(ctx context.Context)
	// Warn tells by an Event on the Node what is wrong.
	Warn func(reason string, err error)
	// Reconciled follows each comparison of ports and interfaces with intent.
	Reconciled func(err error)
	// InterfaceGone says that an attachment's interface does not exist.
	InterfaceGone func()
	// UplinksChanged says that Connected has another answer for a physical network.
	UplinksChanged func()
	// Repaired counts Ports that were made again, Swept what was removed because
	// it belonged to none.
	Repaired func(n int)
	Swept    func(kind string, n int)
	// Refused are all objects that the data path refuses now.
	Refused func([]policy.Refusal)
	// EgressClaims are all EgressAddresses that this node is active for and that the API does not
	// say so of.
	EgressClaims func([]ExternalAddress)
	// Leased says that a Port's machine has got addresses by DHCP or DHCPv6, also the same ones
	// again, or has given them back.
	Leased func(Lease)
	// Asked takes what the machine of a Port asks DHCP servers that are not this node's: a frame.
	Asked func(p intent.Port, frame []byte)
	// Replied takes an answer of a DHCP server of the physical network of a Network with Leased
	// set: a frame without a VLAN tag.
	Replied func(network string, frame []byte)
}

// Lease is what a Port's machine has by DHCP, or by DHCPv6: it may have one of each.
type Lease struct {
	Port intent.Port
	IPv6 bool // by DHCPv6
	// HostName is what the machine calls itself, a name of DNS; empty: it does not say.
	HostName string
	// Addresses are of the family; none: the machine has given them back.
	Addresses []netip.Addr
	// Duration is how long it may use them from now on.
	Duration time.Duration
}

// ExternalAddress is an address of an external Network.
type ExternalAddress struct {
	Network string
	Address netip.Addr
}

// Events tells users what is wrong with their objects.
type Events interface {
	PodWarning(namespace, name, uid, reason, message string)
	PortWarning(namespace, name, uid, reason, message string)
	ServiceWarning(namespace, name, uid, reason, message string)
	// ObjectWarning is about an object of which the UID is not known.
	ObjectWarning(apiVersion, kind, namespace, name, reason, message string)
}

// RefusedError says that the data path has an attachment's intent but for an
// object that it refuses.
type RefusedError struct {
	// Problem names the object and says why it is refused.
	Problem string
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Problem }

// BadRequestError says what is wrong with a question about packets.
type BadRequestError struct{ Problem string }

// Error implements error.
func (e *BadRequestError) Error() string { return e.Problem }

// Balanced are the UDP connections of clients to a Service's address that go to an endpoint.
type Balanced struct {
	IPv6     bool
	Service  netip.AddrPort  // of no address: any of the node's, for a node port
	Endpoint intent.Endpoint // the zero value: any
}

// Guest is an interface of the data path that is not Coelan's, such as a virtual machine's.
type Guest struct {
	Name string
	// ID says what it is plugged for: the namespace/name of a Port, or its UID; or namespace/? if
	// the machine names none.
	ID string
	// MAC is what it says of the machine's; empty: nothing.
	MAC string
	// Number is what the data path knows it by; less than 0 if it could not be opened.
	Number int
}

// OwnNode returns a node's intent, or why it cannot be used yet.
func OwnNode(s *intent.State, name string) (intent.Node, error) {
	n, ok := s.Nodes().Get(name)
	switch {
	case !ok:
		return n, fmt.Errorf("node %s is not known: has the API server been reached, and is --node-name right?", name)
	case len(n.Addresses) == 0:
		return n, fmt.Errorf("node %s has no InternalIP in its status", name)
	case len(n.Subnets) == 0:
		return n, fmt.Errorf("node %s has no podCIDR: does the controller manager run with --allocate-node-cidrs?",
			name)
	}
	return n, nil
}

// Removal is one thing that a backend has put on a node, for when Coelan is removed.
type Removal struct {
	What string
	Do   func() error
}
