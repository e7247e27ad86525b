// SPDX-License-Identifier: Apache-2.0

package portbinding

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
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/dhcp/snoop"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/timers"
	"coelan.io/coelan/internal/trigger"
)

// Guests are the interfaces that others plug into the data path.
type Guests interface {
	// Guests lists those that say what they are plugged for.
	Guests(ctx context.Context) ([]backend.Guest, error)
	// RequestNumber gives one its number, and waits until it has it.
	RequestNumber(ctx context.Context, name string, number int) error
}

// API is where Ports are.
type API interface {
	Port(ctx context.Context, namespace, name string) (*v1alpha1.Port, error)
	PatchPortStatus(ctx context.Context, namespace, name string, status any) error
	CreatePort(ctx context.Context, p *v1alpha1.Port) (*v1alpha1.Port, error)
	// DeletePort succeeds if the Port of that UID is gone.
	DeletePort(ctx context.Context, namespace, name string, uid types.UID) error
}

// Blocks are this node's parts of Networks.
type Blocks interface {
	// Ranges are what addresses on a Network are from, of new blocks if all are exhausted. Until
	// ctx ends, none is given back.
	Ranges(ctx context.Context, network intent.Network, exhausted []netip.Prefix) ([]ipam.Range, error)
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

// Leases know the addresses of machines that ask DHCP servers of others.
type Leases interface {
	// Serves says whether the node's backend passes on what machines ask.
	Serves() bool
	// Adopt has a machine that has come from another node go on with its lease.
	Adopt(at attachment.Attachment, lease snoop.Lease)
	Forget(k attachment.Key)
}

// Recorder tells users why their Ports do not work.
type Recorder interface {
	PortWarning(namespace, name, uid, reason, message string)
	// ObjectWarning is about an object that does not exist.
	ObjectWarning(apiVersion, kind, namespace, name, reason, message string)
}

// Options are what a Binder works with. All are needed.
type Options struct {
	Log  *slog.Logger
	Node string
	// Mapping says which Network machines are on that name no Port, if none selects their
	// namespace.
	Mapping config.Mapping
	Guests  Guests
	API     API
	Blocks  Blocks
	View    *apicache.View
	Store   *attachment.Store
	Flows   Flows
	Events  Recorder
	MTU     func() int
	// Leases are of machines on Networks with ipam DHCP.
	Leases Leases
	// BoundFirst has a Port say that it is bound before it forwards: the controller connects what
	// the API says to be bound.
	BoundFirst bool
}

// Binder is the part of one node's agent.
type Binder struct {
	Options
	wake  trigger.Trigger
	ports *index // of Run

	// told are the statuses that were written last, by namespace/name, until the view shows them.
	mu   sync.Mutex
	told map[string]string

	// waiting are the attachments of dynamic Ports that wait for their interface without flows,
	// with the time until which they do; zero: not known yet.
	waiting map[attachment.Key]time.Time
}

// New makes a Binder.
func New(o Options) *Binder {
	return &Binder{
		Options: o, wake: trigger.New(), ports: newIndex(), told: map[string]string{},
		waiting: map[attachment.Key]time.Time{},
	}
}

// Kick says that something of Open vSwitch has changed.
func (b *Binder) Kick() {
	b.wake.Fire()
}

// The pauses between attempts, and the bound of one.
const (
	minRetry    = 200 * time.Millisecond
	maxRetry    = 10 * time.Second
	passTimeout = 30 * time.Second
)

// Run binds and unbinds until ctx ends.
func (b *Binder) Run(ctx context.Context) error {
	backoff := retry.New(minRetry, maxRetry)
	for {
		changed := b.View.Changes()
		bounded, cancel := context.WithTimeout(ctx, passTimeout)
		due, err := b.pass(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			b.Log.Warn("cannot bind Ports to guests' interfaces, retrying", "err", err)
		}
		again := backoff.After(err)
		if err == nil {
			again = timers.At(due)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-b.wake:
		case <-again:
		}
	}
}

// pass compares interfaces, Ports and what is bound. It goes on after an error. It returns when to
// look again although nothing changes; zero: then not.
func (b *Binder) pass(ctx context.Context) (due time.Time, _ error) {
	found, err := b.Guests.Guests(ctx)
	if err != nil {
		return due, nil //nolint:nilerr // the database is away: what is bound stays, and its return is told
	}
	s := b.View.State()
	b.ports.follow(s.Ports, b.concerned)
	plugged, unnamed := b.ports.plugged(found)
	missing := b.place(s, unnamed, plugged)
	var errs []error
	for _, at := range b.Store.List() {
		if at.IsPort() {
			errs = append(errs, b.keep(ctx, s, at, plugged))
		}
	}
	for key, list := range plugged {
		switch o := s.Ports.Get(key); {
		case o == nil:
		case o.Spec.Dynamic && s.Listed(kube.Ports):
			errs = append(errs, b.considerDynamic(ctx, s, o, list))
		case !o.Spec.ByAgent():
			errs = append(errs, b.consider(ctx, s, o, list))
		}
	}
	for key, o := range b.ports.here {
		switch {
		case len(plugged[key]) > 0 || !s.Listed(kube.Ports):
		case o.Spec.Dynamic:
			again, err := b.leave(ctx, o)
			errs = append(errs, err)
			if due.IsZero() || !again.IsZero() && again.Before(due) {
				due = again
			}
		case o.Status.Node == b.Node:
			errs = append(errs, b.tell(ctx, o, b.unplugged(o)))
		default:
			errs = append(errs, b.tell(ctx, o, map[string]any{"lastError": nil}))
		}
	}
	for _, m := range missing {
		errs = append(errs, b.make(ctx, s, m))
	}
	return due, errors.Join(errs...)
}

// concerned says whether a Port without an interface on this node may have to be told or to go.
func (b *Binder) concerned(o *v1alpha1.Port) bool {
	if o.Spec.Dynamic {
		return o.Spec.Node == b.Node && o.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByAgent
	}
	return o.Status.Node == b.Node || b.complained(o.Status.LastError)
}

// keep ends a binding if its Port or interface is gone. Dynamic Ports outlast their interface.
func (b *Binder) keep(ctx context.Context, s apicache.State, at attachment.Attachment,
	plugged map[string][]backend.Guest,
) error {
	key := at.PortKey()
	o := s.Ports.Get(key)
	why := ""
	switch {
	case o == nil && s.Listed(kube.Ports):
		why = "the Port was deleted"
	case o == nil:
		return nil // not heard of since the start
	case at.Dynamic && string(o.UID) != at.PodUID:
		why = "the Port is another one"
	case at.Dynamic:
		return nil
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
	return b.release(ctx, at, why)
}

// release ends a binding.
func (b *Binder) release(ctx context.Context, at attachment.Attachment, why string) error {
	if err := b.Flows.Disconnect(ctx, at); err != nil {
		return fmt.Errorf("port %s: %w", at.PortKey(), err)
	}
	if _, err := b.Store.Release(at.Key); err != nil {
		return fmt.Errorf("port %s: %w", at.PortKey(), err)
	}
	if at.Leased {
		b.Leases.Forget(at.Key)
	}
	delete(b.waiting, at.Key)
	b.Log.Info("Port unbound", "port", at.PortKey(), "interface", at.HostInterface, "why", why)
	return nil
}

func has(list []backend.Guest, name string) bool {
	for _, i := range list {
		if i.Name == name {
			return true
		}
	}
	return false
}

// allowed says whether this node may bind a Port, with the reason and the text of a refusal.
func (b *Binder) allowed(s apicache.State, o *v1alpha1.Port) (ok bool, reason, refusal string) {
	n := s.Networks.Get(o.Spec.Network)
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
func (b *Binder) consider(ctx context.Context, s apicache.State, o *v1alpha1.Port, list []backend.Guest) error {
	key := o.Namespace + "/" + o.Name
	if ok, reason, refusal := b.allowed(s, o); !ok {
		b.warn(o, reason, refusal)
		return b.tell(ctx, o, map[string]any{"lastError": reason + ": " + refusal})
	}
	network, ok := b.Flows.Network(o.Spec.Network)
	if !ok {
		return nil // the Network's arrival is told
	}
	if len(o.Status.Addresses) == 0 && !network.Leased || o.Status.MAC == "" {
		return nil // the controller has not come to it yet
	}
	if network.Leased && !b.Leases.Serves() {
		b.warn(o, v1alpha1.ReasonNoLease, noLeases)
		return b.tell(ctx, o, map[string]any{"lastError": v1alpha1.ReasonNoLease + ": " + noLeases})
	}
	if len(list) > 1 {
		b.warn(o, v1alpha1.ReasonBoundElsewhere,
			fmt.Sprintf("interfaces %s and %s of node %s both have its iface-id: the first has it",
				list[0].Name, list[1].Name, b.Node))
	}
	at, err := b.attachment(ctx, o, network, list)
	if err != nil {
		var taken *attachment.TakenError
		if errors.As(err, &taken) {
			b.warn(o, v1alpha1.ReasonAddressTaken, taken.Error())
			return b.tell(ctx, o, map[string]any{"lastError": v1alpha1.ReasonAddressTaken + ": " + taken.Error()})
		}
		return fmt.Errorf("port %s: %w", key, err)
	}
	status := map[string]any{}
	if at.Leased {
		status["addresses"] = texts(at)
	}
	return b.connect(ctx, o, at, status)
}

// noLeases is why a machine is not bound by some backends.
const noLeases = "the Network has ipam DHCP, and with this node's backend the agent cannot pass on what machines " +
	"ask DHCP servers: that takes ovs"

// connect makes a Port forward, and its status say that it is bound beside what is given.
func (b *Binder) connect(ctx context.Context, o *v1alpha1.Port, at attachment.Attachment,
	status map[string]any,
) error {
	key := at.PortKey()
	if err := b.Guests.RequestNumber(ctx, at.HostInterface, int(at.OFPort)); err != nil {
		return fmt.Errorf("port %s: %w", key, err)
	}
	delete(b.waiting, at.Key)
	status["phase"], status["node"] = v1alpha1.PortBound, b.Node
	status["boundTime"] = metav1.Time{Time: at.Created}
	if b.BoundFirst {
		if err := b.tell(ctx, o, status); err != nil {
			return err
		}
		status = map[string]any{}
	}
	if err := b.Flows.Connect(ctx, at); err != nil {
		err = fmt.Errorf("port %s: %w", key, err)
		var refused *backend.RefusedError
		if errors.As(err, &refused) { // the error has it tried again
			complaint := v1alpha1.ReasonRefused + ": " + refused.Error()
			return errors.Join(err, b.tell(ctx, o, map[string]any{"lastError": complaint}))
		}
		return err
	}
	status["lastError"] = nil
	return b.tell(ctx, o, status)
}

// maxWaitForFree bounds how long a Port waits for its addresses where they have just been released.
const maxWaitForFree = 5 * time.Second

// attachment is what the store has for a Port, or gets.
func (b *Binder) attachment(ctx context.Context, o *v1alpha1.Port, network intent.Network,
	list []backend.Guest,
) (attachment.Attachment, error) {
	key := attachment.PortKey(o.Namespace, o.Name)
	if at, ok := b.Store.Get(key); ok {
		return at, nil
	}
	plan, err := b.plan(o, network, list, o.Status.MAC)
	if err != nil {
		return attachment.Attachment{}, err
	}
	if network.Leased {
		return b.leased(ctx, o, plan)
	}
	for _, text := range o.Status.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return attachment.Attachment{}, err
		}
		plan.Addresses = append(plan.Addresses, a)
	}
	return b.allocate(ctx, plan)
}

// plan is that of a Port without addresses.
func (b *Binder) plan(o *v1alpha1.Port, network intent.Network, list []backend.Guest,
	mac string,
) (attachment.Plan, error) {
	plan := attachment.Plan{
		Spec: attachment.Spec{
			Key:          attachment.PortKey(o.Namespace, o.Name),
			PodNamespace: o.Namespace, PodName: o.Name, PodUID: string(o.UID), PortName: o.Name,
			HostInterface: list[0].Name, NetworkName: network.Name, NetworkID: network.ID,
			BlockSpace: !network.FromNodes(), MTU: b.MTU(),
		},
		Subnets: network.Subnets,
	}
	parsed, err := intent.ParseMAC(mac)
	plan.MAC = &parsed
	return plan, err
}

func (b *Binder) allocate(ctx context.Context, plan attachment.Plan) (attachment.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWaitForFree)
	defer cancel()
	all, err := b.Store.AllocateAllWhenFree(ctx, plan)
	if err != nil {
		return attachment.Attachment{}, err
	}
	at := all[0]
	b.Log.Info("Port bound",
		"port", at.PortKey(), "interface", at.HostInterface, "ofport", at.OFPort, "addresses", at.Addresses)
	return at, nil
}

// sameAddresses says whether an attachment has what a Port's status says.
func sameAddresses(o *v1alpha1.Port, at attachment.Attachment) bool {
	if len(o.Status.Addresses) != len(at.Addresses) && !at.Leased || o.Status.MAC != at.MAC.String() ||
		o.Spec.Network != at.NetworkName {
		return false
	}
	for i, a := range at.Addresses {
		if !at.Leased && o.Status.Addresses[i] != a.Addr().String() {
			return false
		}
	}
	return true
}
