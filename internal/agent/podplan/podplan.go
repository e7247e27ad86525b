// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/wellknown"
)

// API is asked for what the view does not have. Its errors are those of package apierrors.
type API interface {
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
	Definition(ctx context.Context, namespace, name string) (*kube.Definition, error)
	// KuryrPort is a KuryrPort, as JSON.
	KuryrPort(ctx context.Context, namespace, name string) ([]byte, error)
}

// Ports writes the Ports of pods.
type Ports interface {
	// Write makes the Port of an attachment known to the API before it returns.
	Write(ctx context.Context, at attachment.Attachment) error
	// Ask makes a Port that asks what the port of Neutron has that an attachment is to be.
	Ask(ctx context.Context, at attachment.Attachment) (types.UID, error)
	// Remove sees to it that the Port goes, and the fixed addresses with it, as soon
	// as that can be.
	Remove(at attachment.Attachment)
}

// Recorder tells users of pods what was left out.
type Recorder interface {
	PodWarning(namespace, name, uid, reason, message string)
}

// Options are what a Planner works with. All are needed.
type Options struct {
	Log     *slog.Logger
	Node    string
	Mapping config.Mapping
	// Serves says whether this agent makes the interfaces that annotations request:
	// no other program does.
	Serves func() bool
	// Neutron says that Ports become ports of Neutron: pods can have one that the container runtime
	// names, and keep what Kuryr has given them, on Networks that were Kuryr's.
	Neutron bool
	// Connected says why this node is not connected to a physical network.
	Connected func(physical string) error
	// InEffect returns the intent of a Network and of its Router; false if there is none, or if it
	// is of other objects than a State of the view has.
	InEffect func(seen apicache.State, network string) (intent.Network, intent.Router, bool)

	View   *apicache.View
	API    API
	Blocks *blockipam.Blocks
	Store  *attachment.Store
	Ports  Ports
	Events Recorder
}

// Planner implements cni.Planner.
type Planner struct{ Options }

var _ cni.Planner = (*Planner)(nil)

// New makes a Planner.
func New(o Options) *Planner { return &Planner{o} }

// Waits: for the view to catch up with the kubelet, and for the controller to come
// to a new Network.
const (
	viewTimeout    = time.Second
	askTimeout     = 3 * time.Second
	networkTimeout = 15 * time.Second
)

// refused makes a *cni.PlanError.
func refused(reason, format string, args ...any) error {
	return &cni.PlanError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// early makes a *cni.PlanError that says to try again.
func early(reason, format string, args ...any) error {
	return &cni.PlanError{Reason: reason, Message: fmt.Sprintf(format, args...), Retry: true}
}

// Plan implements cni.Planner.
func (p *Planner) Plan(ctx context.Context, ask cni.Request) ([]attachment.Plan, error) {
	if err := p.heard(ctx, ask.PodNamespace); err != nil {
		return nil, err
	}
	namespace, err := p.namespace(ctx, ask.PodNamespace)
	if err != nil {
		return nil, err
	}
	if ask.Delegate() {
		i, err := p.delegate(ctx, ask, namespace)
		if err == nil {
			i, err = p.fromNeutron(ctx, ask, i)
		}
		if err == nil {
			err = p.mayBeFixed(i)
		}
		return []attachment.Plan{i}, err
	}
	pod, err := p.pod(ctx, ask)
	if err != nil {
		return nil, err
	}
	first, err := p.primary(ctx, ask, namespace)
	if err != nil {
		return nil, err
	}
	further, err := p.requested(ctx, ask, pod, namespace, &first)
	if err != nil {
		return nil, err
	}
	if first, err = p.fromNeutron(ctx, ask, first); err != nil {
		return nil, err
	}
	for _, i := range append([]attachment.Plan{first}, further...) {
		if err := p.mayBeFixed(i); err != nil {
			return nil, err
		}
	}
	if first.NetworkName != intent.DefaultNetworkName || len(further) > 0 {
		// The flows of a restarted agent must not lack a Network that a pod is on.
		if err := p.View.Save(); err != nil {
			return nil, err
		}
	}
	return append([]attachment.Plan{first}, further...), nil
}

// mayBeFixed refuses addresses and MACs that an interface asks for and that its Network does not
// let it choose.
func (p *Planner) mayBeFixed(i attachment.Plan) error {
	n := p.View.State().Networks.Get(i.NetworkName)
	if n == nil {
		return nil // the Network default, of which nothing is said yet
	}
	for _, a := range i.Addresses {
		if why := translate.FixedAddressRefused(n, a); why != "" {
			return refused(v1alpha1.ReasonFixedAddress, "interface %s: %s", i.IfName, why)
		}
	}
	if i.MAC != nil {
		if why := translate.FixedMACRefused(n, *i.MAC); why != "" {
			return refused(v1alpha1.ReasonFixedMAC, "interface %s: %s", i.IfName, why)
		}
	}
	return nil
}

// pod finds the pod of an ADD. It is nil if the API does not know it, or is away: it asks for
// nothing then, unless that is remembered.
func (p *Planner) pod(ctx context.Context, ask cni.Request) (*corev1.Pod, error) {
	bounded, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	s, ok := p.View.Await(bounded, func(s apicache.State) bool {
		return s.Pod(ask.PodNamespace, ask.PodName, ask.PodUID) != nil
	})
	if ok {
		return s.Pod(ask.PodNamespace, ask.PodName, ask.PodUID), nil
	}
	bounded, cancel = context.WithTimeout(ctx, askTimeout)
	defer cancel()
	pod, err := p.API.Pod(bounded, ask.PodNamespace, ask.PodName)
	switch {
	case err == nil && (string(pod.UID) == ask.PodUID || wellknown.PodUID(pod) == ask.PodUID):
		return pod, nil
	case err == nil || apierrors.IsNotFound(err):
		if intent.IsStaticUID(ask.PodUID) {
			return nil, nil // its mirror is not there yet, or never will be
		}
		return nil, early(v1alpha1.ReasonInvalid, "pod %s/%s with UID %s is not known to the API server",
			ask.PodNamespace, ask.PodName, ask.PodUID)
	case answered(err):
		return nil, early(v1alpha1.ReasonInvalid, "pod %s/%s: %v", ask.PodNamespace, ask.PodName, err)
	}
	p.Log.Warn("API server unreachable and pod not cached: attaching it to its namespace's Network only",
		"pod", ask.PodNamespace+"/"+ask.PodName, "err", err)
	return nil, nil
}

// answered says whether an error is an answer of the API server, and not that there was none.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// namespace finds the namespace of an ADD; nil if the API is away and nothing is remembered of it.
func (p *Planner) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if ns := p.View.State().Namespaces.Get(name); ns != nil {
		return ns, nil
	}
	bounded, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	if s, ok := p.View.Await(bounded, func(s apicache.State) bool { return s.Namespaces.Get(name) != nil }); ok {
		return s.Namespaces.Get(name), nil
	}
	bounded, cancel = context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ns, err := p.API.Namespace(bounded, name)
	switch {
	case err == nil:
		return ns, nil
	case answered(err):
		return nil, early(v1alpha1.ReasonInvalid, "namespace %s: %v", name, err)
	}
	p.Log.Warn("API server unreachable and namespace not cached", "namespace", name, "err", err)
	return nil, nil
}

// primary plans the first interface of a pod.
func (p *Planner) primary(ctx context.Context, ask cni.Request, namespace *corev1.Namespace) (attachment.Plan, error) {
	name, problem := translate.PrimaryNetwork(p.Mapping, ask.PodNamespace, namespace, p.Node,
		p.View.State().NetworkList())
	if problem != nil {
		p.Events.PodWarning(ask.PodNamespace, ask.PodName, ask.PodUID, v1alpha1.ReasonInvalid, problem.Error())
	}
	i := plan(ask.IfName, ask.Requested)
	i.Primary, i.DefaultRoute = true, true
	if name == intent.DefaultNetworkName {
		return onDefault(i), nil
	}
	// The first pod of a namespace is there before the Network that the controller makes for it.
	i, err := p.on(ctx, i, func(s apicache.State) string {
		now, _ := translate.PrimaryNetwork(p.Mapping, ask.PodNamespace, namespace, p.Node, s.NetworkList())
		if now == intent.DefaultNetworkName {
			return name
		}
		return now
	})
	if err != nil {
		return i, p.explain(ask.PodNamespace, err)
	}
	return p.fromKuryr(ctx, ask, i)
}

// explain says of a Network that is not there where to look for the reason, if the controller is to
// make it.
func (p *Planner) explain(namespace string, err error) error {
	var e *cni.PlanError
	if errors.As(err, &e) && p.Mapping == config.MapNamespace && e.Reason == v1alpha1.ReasonNetworkNotFound {
		e.Message += ": the controller makes the Network of namespace " + namespace +
			", or an Event of the namespace says why not"
	}
	return err
}

// heard waits until the API was heard since the start about what decides which Network a pod is on:
// by what is remembered a pod of a new tenant, or of a namespace with new labels, would be on the
// Network default for good. What is remembered has to do if the API server does not answer.
func (p *Planner) heard(ctx context.Context, namespace string) error {
	bounded, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	s, ok := p.View.Await(bounded, func(s apicache.State) bool {
		return s.Listed(kube.Networks) && s.Listed(apicache.Namespaces)
	})
	if ok {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.AnyListed() {
		// It is away, or slow: that is another matter, because it may know what is not remembered.
		bounded, cancel := context.WithTimeout(ctx, viewTimeout)
		defer cancel()
		if _, err := p.API.Namespace(bounded, namespace); err != nil && !answered(err) {
			p.Log.Warn("API server unreachable: using the cached namespace to choose the pod's Network",
				"namespace", namespace, "err", err)
			return nil
		}
	}
	return early(v1alpha1.ReasonNetworkNotReady, "the API server was not heard yet about all Networks and namespaces")
}

func onDefault(i attachment.Plan) attachment.Plan {
	i.NetworkName, i.NetworkID, i.BlockSpace = intent.DefaultNetworkName, intent.DefaultNetwork, false
	return i
}

// delegate plans an interface that another plugin requests by a configuration.
func (p *Planner) delegate(ctx context.Context, ask cni.Request, namespace *corev1.Namespace) (attachment.Plan, error) {
	i := plan(ask.IfName, attachment.Requested{Addresses: ask.Addresses, MAC: ask.MAC})
	name := ask.Network
	if ask.VNI != 0 {
		var err error
		if name, err = p.withVNI(ask.VNI); err != nil {
			return i, err
		}
	}
	if name == "" {
		pod, err := p.pod(ctx, ask)
		if err != nil {
			return i, err
		}
		named, config, err := p.subnetRequest(ctx, ask, pod)
		if err != nil {
			return i, err
		}
		if config.Subnet != "" {
			return p.onSubnet(ctx, i, named, config, p.primaryOf(ask, namespace), namespace)
		}
		r, ok, err := p.nfnDelegate(ask, pod)
		if err != nil {
			return i, err
		}
		if name, _ = translate.PrimaryNetwork(p.Mapping, ask.PodNamespace, namespace, p.Node,
			p.View.State().NetworkList()); ok {
			name = r.Network
			i.Requested = r.Requested
		}
	}
	if len(ask.Addresses) > 0 {
		i.Addresses = ask.Addresses
	}
	if ask.MAC != nil {
		i.MAC = ask.MAC
	}
	return p.secondary(ctx, i, name, p.primaryOf(ask, namespace), namespace)
}

// plan is that of an interface on no Network yet.
func plan(ifName string, requested attachment.Requested) attachment.Plan {
	return attachment.Plan{Spec: attachment.Spec{Key: attachment.Key{IfName: ifName}, BlockSpace: true},
		Requested: requested}
}

// primaryOf is the Network of the first interface of the pod of a delegate.
func (p *Planner) primaryOf(ask cni.Request, namespace *corev1.Namespace) string {
	for _, at := range p.Store.Of(ask.ContainerID) {
		if at.Primary {
			return at.NetworkName // the namespace may have other labels now
		}
	}
	name, _ := translate.PrimaryNetwork(p.Mapping, ask.PodNamespace, namespace, p.Node, p.View.State().NetworkList())
	return name
}

// secondary is on for an interface that is requested by a pod with its first one
// on the Network primary.
func (p *Planner) secondary(ctx context.Context, i attachment.Plan, name, primary string,
	namespace *corev1.Namespace,
) (attachment.Plan, error) {
	if name == intent.DefaultNetworkName {
		return onDefault(i), p.mayJoinDefault(ctx, primary)
	}
	i, err := p.on(ctx, i, named(name))
	if err != nil {
		return i, err
	}
	if n := p.View.State().Networks.Get(name); n != nil && !translate.MayAttach(n, namespace, p.Node) {
		what := "its namespaceSelector does not select it"
		if n.Spec.Node != "" && n.Spec.Node != p.Node {
			what = "it is for node " + n.Spec.Node + " only"
		}
		return i, refused(v1alpha1.ReasonNotAllowed, "network %s does not take pods of this namespace on node %s: %s",
			name, p.Node, what)
	}
	return i, nil
}

// mayJoinDefault refuses a leg in the cluster to pods that are isolated from it: such a pod would
// be the bridge.
func (p *Planner) mayJoinDefault(ctx context.Context, primary string) error {
	if primary == intent.DefaultNetworkName {
		return nil
	}
	if p.View.State().Networks.Get(primary) == nil {
		return early(v1alpha1.ReasonNetworkNotFound, "network %s, which the pod is on, is not known", primary)
	}
	n, err := p.awaitNetwork(ctx, named(primary))
	switch {
	case err != nil:
		return err
	case !n.shared():
		return refused(v1alpha1.ReasonNotAllowed,
			"network default does not take pods whose first interface is on network %s, which is isolated from the cluster", primary)
	}
	return nil
}

// Ranges implements cni.Planner.
func (p *Planner) Ranges(ctx context.Context, network string, of []intent.NetworkSubnet, exhausted []netip.Prefix) (
	[]ipam.Range, error,
) {
	if p.View.State().Networks.Get(network) == nil {
		return nil, early(v1alpha1.ReasonNetworkNotFound, "network %s is not known any more", network)
	}
	n, err := p.awaitNetwork(ctx, named(network))
	if err != nil {
		return nil, err
	}
	some := narrowed(n.Network, of)
	if len(some.Pools) == 0 {
		return nil, early(v1alpha1.ReasonNetworkNotReady, "network %s has none of the subnets %v any more", network, of)
	}
	ranges, err := p.Blocks.Ranges(ctx, some, exhausted)
	var full *blockipam.ExhaustedError
	switch {
	case errors.As(err, &full):
		return nil, refused(v1alpha1.ReasonExhausted, "%v", err)
	case err != nil:
		return nil, early(v1alpha1.ReasonNetworkNotReady, "%v", err)
	}
	return ranges, nil
}
