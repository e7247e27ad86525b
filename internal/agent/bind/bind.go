// SPDX-License-Identifier: Apache-2.0

// Package bind connects the interfaces of virtual machines and other guests to users' Ports.
//
// The contract is the one that libvirt, Neutron and OVN use. Whoever makes the interface, libvirt for instance, adds it to
// the integration bridge and writes whose it is on it:
//
//	ovs-vsctl add-port br-int tap0 -- set Interface tap0 external_ids:iface-id=NAMESPACE/NAME
//
// The UID of the Port does as well: libvirt takes nothing but UUIDs.
//
// With that, the Port NAMESPACE/NAME is bound to this node: the agent gives the interface an OpenFlow port number
// (ofport_request, the only thing that it changes of it), makes flows for the Port's addresses and MAC, and writes its
// name into the Port's status. The guest has to use that MAC and those addresses; other packets of it are dropped.
//
// When the interface or its iface-id is removed, the flows go and the Port is Ready for another interface, on any node.
// When the Port is deleted, the flows go and the interface stays. The agent never removes an interface that it did not
// make. An iface-id that names no Port means nothing to it, so others may use the bridge in their own way.
//
// A Port is bound on one node at a time: on the one in spec.node, if that is set; else on the one in status.node as long
// as that node exists. Which interface a Port has is remembered over restarts of the agent and of Open vSwitch.
package bind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// IfaceID is the key of the external_ids that says whose an interface is.
const IfaceID = "iface-id"

// OVS is the database of Open vSwitch.
type OVS interface {
	// Interfaces lists the interfaces of a bridge that are not Coelan's and have an external_ids entry of that key.
	Interfaces(ctx context.Context, bridge, key string) ([]ovsdb.PortState, error)
	// RequestNumber gives an interface an OpenFlow port number, and waits until it has it.
	RequestNumber(ctx context.Context, name string, ofport int) error
}

// API is where the status of Ports is written.
type API interface {
	PatchPortStatus(ctx context.Context, namespace, name string, status any) error
}

// Flows are what connects a Port.
type Flows interface {
	// Connect makes the flows of an attachment and waits for them; Disconnect removes them.
	Connect(ctx context.Context, at attachment.Attachment) error
	Disconnect(ctx context.Context, at attachment.Attachment) error
	// Network is what the flows know of a Network.
	Network(name string) (intent.Network, bool)
	// NodeExists says whether a node is a member of the cluster.
	NodeExists(name string) bool
}

// Recorder tells users why their Ports do not work.
type Recorder interface {
	PortWarning(namespace, name, uid, reason, message string)
}

// Options are what a Binder works with. All are needed.
type Options struct {
	Log    *slog.Logger
	Node   string
	Bridge string
	OVS    OVS
	API    API
	View   *view.View
	Store  *attachment.Store
	Flows  Flows
	Events Recorder
	MTU    func() int
}

// Binder is the part of one node's agent.
type Binder struct {
	Options
	wake chan struct{}

	// told are the statuses that were written last, by namespace/name, until the view shows them.
	mu   sync.Mutex
	told map[string]string
}

// New makes a Binder.
func New(o Options) *Binder {
	return &Binder{Options: o, wake: make(chan struct{}, 1), told: map[string]string{}}
}

// Kick says that something of Open vSwitch has changed.
func (b *Binder) Kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// The pauses between attempts, and the bound of one.
const (
	minRetry    = 200 * time.Millisecond
	maxRetry    = 10 * time.Second
	passTimeout = 30 * time.Second
)

// Run binds and unbinds until ctx ends.
func (b *Binder) Run(ctx context.Context) error {
	backoff := minRetry
	for {
		changed := b.View.Changes()
		bounded, cancel := context.WithTimeout(ctx, passTimeout)
		err := b.pass(bounded)
		cancel()
		var retry <-chan time.Time
		if err != nil && ctx.Err() == nil {
			b.Log.Warn("Ports are not bound as they should be, trying again", "err", err)
			retry = time.After(backoff)
			backoff = min(2*backoff, maxRetry)
		} else {
			backoff = minRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-b.wake:
		case <-retry:
		}
	}
}

// pass compares interfaces, Ports and what is bound. It goes on after an error.
func (b *Binder) pass(ctx context.Context) error {
	found, err := b.OVS.Interfaces(ctx, b.Bridge, IfaceID)
	if err != nil {
		return nil //nolint:nilerr // the database is away: what is bound stays, and its return is told
	}
	s := b.View.State()
	plugged := plugged(found, s.Ports)
	var errs []error
	for _, at := range b.Store.List() {
		if at.IsPort() {
			errs = append(errs, b.keep(ctx, s, at, plugged))
		}
	}
	for key, list := range plugged {
		if o := s.Ports[key]; o != nil && o.Spec.Pod == nil {
			errs = append(errs, b.consider(ctx, s, o, list))
		}
	}
	for key, o := range s.Ports {
		if o.Spec.Pod != nil || len(plugged[key]) > 0 || !s.Listed(kube.Ports) {
			continue
		}
		switch {
		case o.Status.Node == b.Node:
			errs = append(errs, b.tell(ctx, o, unbound()))
		case b.complained(o.Status.LastError):
			errs = append(errs, b.tell(ctx, o, map[string]any{"lastError": nil}))
		}
	}
	return errors.Join(errs...)
}

// plugged are the interfaces that can be used, by the key of the Port whose key or UID is their iface-id. One that
// ovs-vswitchd could not open, such as the tap of a machine that is gone, is none.
func plugged(found []ovsdb.PortState, ports map[string]*v1alpha1.Port) map[string][]ovsdb.PortState {
	byUID := map[string]string{}
	for key, o := range ports {
		if o.Spec.Pod == nil {
			byUID[string(o.UID)] = key
		}
	}
	m := map[string][]ovsdb.PortState{}
	for _, i := range found {
		key := i.ExternalIDs[IfaceID]
		if named, ok := byUID[key]; ok {
			key = named
		}
		if namespace, name, ok := strings.Cut(key, "/"); ok && namespace != "" && name != "" && i.Actual >= 0 {
			m[key] = append(m[key], i)
		}
	}
	return m
}

// keep ends a binding whose Port or interface is gone.
func (b *Binder) keep(ctx context.Context, s view.State, at attachment.Attachment, plugged map[string][]ovsdb.PortState) error {
	key := at.PortKey()
	o := s.Ports[key]
	why := ""
	switch {
	case o == nil && s.Listed(kube.Ports):
		why = "the Port was deleted"
	case o == nil:
		return nil // not heard of since the start
	case !has(plugged[key], at.HostInterface):
		why = "the interface is gone"
	case !sameAddresses(o, at):
		why = "the Port's addresses are others"
	default:
		_, _, refusal := b.allowed(s, o)
		why = refusal
	}
	if why == "" {
		return nil
	}
	if err := b.Flows.Disconnect(ctx, at); err != nil {
		return fmt.Errorf("port %s: %w", key, err)
	}
	if _, err := b.Store.Release(at.Key); err != nil {
		return fmt.Errorf("port %s: %w", key, err)
	}
	b.Log.Info("port unbound", "port", key, "interface", at.HostInterface, "why", why)
	return nil
}

func has(list []ovsdb.PortState, name string) bool {
	for _, i := range list {
		if i.Name == name {
			return true
		}
	}
	return false
}

// allowed says whether this node may bind a Port, with the reason and the text of a refusal.
func (b *Binder) allowed(s view.State, o *v1alpha1.Port) (ok bool, reason, refusal string) {
	n := s.Networks[o.Spec.Network]
	switch {
	case o.Spec.Node != "" && o.Spec.Node != b.Node:
		return false, v1alpha1.ReasonBoundElsewhere, "it is for node " + o.Spec.Node + " only" + b.here()
	case o.Status.Node != "" && o.Status.Node != b.Node && b.Flows.NodeExists(o.Status.Node):
		return false, v1alpha1.ReasonBoundElsewhere, "it is bound on node " + o.Status.Node + b.here()
	case n != nil && n.Spec.Node != "" && n.Spec.Node != b.Node:
		return false, v1alpha1.ReasonNotAllowed, "network " + n.Name + " is for node " + n.Spec.Node + " only"
	}
	return true, "", ""
}

// here ends what this node complains of, so that it knows it again.
func (b *Binder) here() string { return ", and an interface for it is on node " + b.Node }

// complained says whether this node has said that a Port is bound elsewhere.
func (b *Binder) complained(lastError string) bool {
	return strings.HasPrefix(lastError, v1alpha1.ReasonBoundElsewhere+":") && strings.HasSuffix(lastError, b.here())
}

// consider binds a Port to the first of the interfaces for it, or tells why not.
func (b *Binder) consider(ctx context.Context, s view.State, o *v1alpha1.Port, list []ovsdb.PortState) error {
	key := o.Namespace + "/" + o.Name
	if ok, reason, refusal := b.allowed(s, o); !ok {
		b.warn(o, reason, refusal)
		return b.tell(ctx, o, map[string]any{"lastError": reason + ": " + refusal})
	}
	if len(o.Status.Addresses) == 0 || o.Status.MAC == "" {
		return nil // the controller has not come to it yet
	}
	network, ok := b.Flows.Network(o.Spec.Network)
	if !ok {
		return nil // likewise; the Network's arrival is told
	}
	if len(list) > 1 {
		b.warn(o, v1alpha1.ReasonBoundElsewhere, fmt.Sprintf("interfaces %s and %s of node %s both have its iface-id: the first has it",
			list[0].Name, list[1].Name, b.Node))
	}
	at, err := b.attachment(o, network, list)
	if err != nil {
		var taken *attachment.TakenError
		if errors.As(err, &taken) {
			b.warn(o, v1alpha1.ReasonAddressTaken, taken.Error())
			return b.tell(ctx, o, map[string]any{"lastError": v1alpha1.ReasonAddressTaken + ": " + taken.Error()})
		}
		return fmt.Errorf("port %s: %w", key, err)
	}
	if err := b.OVS.RequestNumber(ctx, at.HostInterface, int(at.OFPort)); err != nil {
		return fmt.Errorf("port %s: %w", key, err)
	}
	if err := b.Flows.Connect(ctx, at); err != nil {
		return fmt.Errorf("port %s: %w", key, err)
	}
	return b.tell(ctx, o, map[string]any{
		"phase": v1alpha1.PortBound, "node": b.Node, "boundAt": metav1.Time{Time: at.Created}, "lastError": nil,
	})
}

// attachment is what the store has for a Port, or gets.
func (b *Binder) attachment(o *v1alpha1.Port, network intent.Network, list []ovsdb.PortState) (attachment.Attachment, error) {
	key := attachment.PortKey(o.Namespace, o.Name)
	if at, ok := b.Store.Get(key); ok {
		return at, nil
	}
	r := attachment.Request{
		Key: key, PodNamespace: o.Namespace, PodName: o.Name, PodUID: string(o.UID), PortName: o.Name,
		HostInterface: list[0].Name, NetworkName: network.Name, NetworkID: network.ID, BlockSpace: !network.FromNodes(), MTU: b.MTU(),
	}
	mac, err := intent.ParseMAC(o.Status.MAC)
	if err != nil {
		return attachment.Attachment{}, err
	}
	r.MAC = &mac
	for _, text := range o.Status.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return attachment.Attachment{}, err
		}
		f := attachment.Fixed{Address: netip.PrefixFrom(a, a.BitLen())}
		for _, s := range network.Subnets {
			if s.Prefix.Contains(a) {
				f = attachment.Fixed{Address: netip.PrefixFrom(a, s.Prefix.Bits()), Gateway: s.Gateway}
			}
		}
		r.Fixed = append(r.Fixed, f)
	}
	at, err := b.Store.Allocate(r)
	if err == nil {
		b.Log.Info("port bound", "port", at.PortKey(), "interface", at.HostInterface, "ofport", at.OFPort, "addresses", at.Addresses)
	}
	return at, err
}

// sameAddresses says whether an attachment has what a Port's status says.
func sameAddresses(o *v1alpha1.Port, at attachment.Attachment) bool {
	if len(o.Status.Addresses) != len(at.Addresses) || o.Status.MAC != at.MAC.String() || o.Spec.Network != at.NetworkName {
		return false
	}
	for i, a := range at.Addresses {
		if o.Status.Addresses[i] != a.Addr().String() {
			return false
		}
	}
	return true
}
