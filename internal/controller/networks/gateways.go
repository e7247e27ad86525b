// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// gateways gives the nodes that lead out of Routers, or the Routers themselves where their gateway
// is centralized, their addresses of external Networks.
type gateways struct {
	*reconcile.Access
	claims claims
}

func (r *gateways) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	w := watches{r.Access}
	return ctrl.NewControllerManagedBy(m).Named("gateways").WithOptions(reconcile.Queue(reconcile.Workers)).
		Watches(&v1alpha1.Router{}, &handler.EnqueueRequestForObject{}).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.gatewaysOfBlock)).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(w.gatewaysWithout),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.gatewaysOfNetwork),
			builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.gatewaysOfPort),
			builder.WithPredicates(portMoved())).
		Watches(&v1alpha1.Port{}, handler.EnqueueRequestsFromMapFunc(w.gatewaysWithout),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.allGateways),
			builder.WithPredicates(gatewayNodeChanged())).
		Watches(&v1alpha1.LoadBalancerPool{}, handler.EnqueueRequestsFromMapFunc(w.gatewaysWithout),
			builder.WithPredicates(rangesChanged())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("gateways"), r))
}

// Reconcile is for one Router. What is left of one that is gone, blocks removes.
func (r *gateways) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	router := &v1alpha1.Router{}
	there, err := r.Find(ctx, "", request.Name, router)
	if err != nil || !there {
		return ctrl.Result{}, err
	}
	list, err := reconcile.All(ctx, r, &v1alpha1.AddressBlockList{},
		client.MatchingFields{reconcile.ByGateway: router.Name})
	if err != nil {
		return ctrl.Result{}, err
	}
	now, has := router.DeepCopy(), reconcile.Pointers(list.Items)
	var again time.Duration
	switch {
	case router.Spec.Gateway == nil:
		now.Status.GatewayNodes, now.Status.GatewayAddresses = 0, nil
		reconcile.RemoveConditions(&now.Status.Conditions, v1alpha1.ConditionGatewayReady)
		err = r.release(ctx, router, has, func(*v1alpha1.AddressBlock) bool { return false })
	case router.Spec.Gateway.IsCentralized():
		again, err = r.centralize(ctx, now, has)
	default:
		again, err = r.apply(ctx, now, has)
	}
	if err != nil {
		return reconcile.Requeue(err)
	}
	if !equality.Semantic.DeepEqual(router.Status, now.Status) {
		if err := r.WriteStatus(ctx, router, now); err != nil {
			return reconcile.Requeue(err)
		}
		r.Announce(now, allocate.Verdict{}, router.Status.Conditions, now.Status.Conditions)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// apply claims and gives back what the verdict on the Router's gateway says, and writes into its
// status what has become of it. Has are all blocks of the Router's gateways.
func (r *gateways) apply(ctx context.Context, router *v1alpha1.Router,
	has []*v1alpha1.AddressBlock,
) (again time.Duration, err error) {
	cluster, err := r.cluster(ctx, router, has)
	if err != nil {
		return 0, err
	}
	v := allocate.CheckGateway(router, cluster)
	s := gatewayAddresses{nodes: cluster.Having}
	if !v.Keep {
		if s, err = r.claim(ctx, router.Name, cluster.Network, v); err != nil {
			return 0, err
		}
		if err := r.release(ctx, router, has, func(b *v1alpha1.AddressBlock) bool {
			// Of a node that is not known here, blocks asks the API server whether it is gone.
			unsure := v.Reason == "" && b.Spec.Network == cluster.Network.Name && nodeOf(b) != v1alpha1.AnyNode &&
				!cluster.Knows(nodeOf(b))
			return unsure || s.blocks[b.Name]
		}); err != nil {
			return 0, err
		}
	}
	router.Status.GatewayNodes = int32(len(s.nodes)) //nolint:gosec // a number of nodes
	router.Status.GatewayAddresses = nil
	c := allocate.GatewayReady(v, cluster.Network, len(s.nodes), s.refused)
	c.ObservedGeneration = router.Generation
	reconcile.SetCondition(&router.Status.Conditions, c)
	return s.again, nil
}

// cluster is what the Router's gateway is judged by.
func (r *gateways) cluster(ctx context.Context, router *v1alpha1.Router,
	has []*v1alpha1.AddressBlock,
) (c allocate.GatewayCluster, err error) {
	if c.Network, err = found(ctx, r.Access, "", router.Spec.Gateway.Network, &v1alpha1.Network{}); err != nil {
		return c, err
	}
	networks, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{})
	if err != nil {
		return c, err
	}
	if c.Nodes, c.Held, err = r.claims.held(ctx); err != nil {
		return c, err
	}
	c.Having, c.Present = map[string]bool{}, map[string]bool{}
	for _, b := range has {
		a, single := address(b)
		switch {
		case b.Spec.Network != router.Spec.Gateway.Network || !single:
		case nodeOf(b) == v1alpha1.AnyNode:
			c.Has = append(c.Has, a)
		default:
			c.Having[nodeOf(b)] = true
		}
	}
	for _, n := range reconcile.Pointers(networks.Items) {
		if translate.EffectiveRouter(n) != router.Name {
			continue
		}
		c.Networks = append(c.Networks, n)
		if err := r.present(ctx, n.Name, c.Present); err != nil {
			return c, err
		}
	}
	return c, nil
}

// present adds the nodes that have a block or a Port of a Network.
func (r *gateways) present(ctx context.Context, network string, nodes map[string]bool) error {
	of := client.MatchingFields{reconcile.ByNetwork: network}
	blocks, err := reconcile.All(ctx, r, &v1alpha1.AddressBlockList{}, of)
	if err != nil {
		return err
	}
	ports, err := reconcile.All(ctx, r, &v1alpha1.PortList{}, of)
	if err != nil {
		return err
	}
	for _, b := range blocks.Items {
		nodes[b.Spec.Node] = true
	}
	for _, p := range ports.Items {
		nodes[p.Status.Node] = true
	}
	return nil
}

func (r *gateways) release(ctx context.Context, router *v1alpha1.Router, blocks []*v1alpha1.AddressBlock,
	kept func(*v1alpha1.AddressBlock) bool,
) error {
	return r.claims.releaseOf(ctx, router, &v1alpha1.Router{}, blocks, kept)
}

// nodeOf is the node that a block makes a gateway; AnyNode if it is for a centralized one.
func nodeOf(b *v1alpha1.AddressBlock) string {
	_, node, _ := strings.Cut(b.Spec.Gateway, "/")
	return node
}

// gatewayAddresses are those that the gateways of a Router have.
type gatewayAddresses struct {
	nodes   map[string]bool // that have one
	blocks  map[string]bool // by name
	refused []allocate.GatewayRefusal
	again   time.Duration // until it is worth another look if nothing happens; 0: never
}

// claim gives each node of the verdict an address of each family.
func (r *gateways) claim(ctx context.Context, router string, network *v1alpha1.Network,
	v allocate.GatewayVerdict,
) (s gatewayAddresses, err error) {
	if len(v.Nodes) == 0 {
		return s, nil
	}
	blocks, ports, err := r.claims.blocksAndPorts(ctx, network)
	if err != nil {
		return s, err
	}
	s.nodes, s.blocks = map[string]bool{}, map[string]bool{}
	for _, node := range v.Nodes {
		for _, pools := range v.Pools {
			a, refusal, err := r.claims.any(ctx, claimantGateway(router, node), blocks, pools, ports)
			if err != nil {
				return s, err
			}
			if a.IsValid() {
				s.blocks[names.BlockName(network.Name, netip.PrefixFrom(a, a.BitLen()))] = true
			}
			if refusal == nil {
				s.nodes[node] = true
				continue
			}
			s.refused = append(s.refused, allocate.GatewayRefusal{
				Node: node, Reason: refusal.reason, Message: refusal.message + gatewayFixes[refusal.reason]})
			s.again = max(s.again, refusal.again)
		}
	}
	return s, nil
}

// gatewayFixes are what can be done about a refusal.
var gatewayFixes = map[string]string{
	v1alpha1.ReasonExhausted: ": add a subnet to the Network, or select fewer nodes in spec.gateway.nodes",
}
