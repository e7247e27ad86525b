// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// PoolVerdict is what a LoadBalancerPool's status is to say.
type PoolVerdict struct {
	Verdict            // its ID and VNI mean nothing here
	Ranges    []string // in effect
	Addresses int64    // in effect, how many
	Users     []string // such as "service shop/web", one for each address, sorted
}

// LoadBalancers is the outcome of AllocateLoadBalancers.
type LoadBalancers struct {
	Pools map[string]PoolVerdict // by name
	// Services are those that Coelan writes the status of, with the addresses that it is to have,
	// in the order of their families. All others are not Coelan's.
	Services map[types.NamespacedName][]netip.Addr
	// Problems are sorted. None is about a pool: those are in the verdicts.
	Problems []translate.ServiceProblem
}

// AllocateLoadBalancers decides which addresses of pools Services of type LoadBalancer have: those
// of the class coelan.io/pool, and those without a class if they name a pool or an address or if
// there is a pool that assigns by itself; but see AllocateServiceFloatingIPs.
//
// What a Service has by its status, it keeps, unless it asks for something else that it can have;
// also if the pool is refused now, is being deleted, or has the address no longer in its spec. It
// loses what is of a pool that does not select its namespace. Of two that want the same, the one
// that has it gets it, then the older one. What is asked for by name goes before what is not. An
// address is one Service's alone, and never one that a node, a ClusterIP or a foreign load
// balancer's is. External IPs keep nothing from pools: see ExternalIPs.
//
// A Service without a class that has addresses in its status, but none of a pool,
// belongs to another controller.
func AllocateLoadBalancers(pools []*v1alpha1.LoadBalancerPool, services []*corev1.Service, nodes []*corev1.Node,
	networks []*v1alpha1.Network, namespaces []*corev1.Namespace,
) LoadBalancers {
	byName := make(map[string]*corev1.Namespace, len(namespaces))
	for _, n := range namespaces {
		byName[n.Name] = n
	}
	a := &lbAllocator{
		known: pools, pools: admitPools(pools, nodes, networks, byName), taken: map[netip.Addr][]string{},
		given: map[netip.Addr]*lbRequest{},
		out:   LoadBalancers{Pools: map[string]PoolVerdict{}, Services: map[types.NamespacedName][]netip.Addr{}},
	}
	services = slices.Clone(services)
	slices.SortFunc(services, func(x, y *corev1.Service) int {
		at, bt := x.CreationTimestamp, y.CreationTimestamp
		return cmp.Or(at.Compare(bt.Time), cmp.Compare(x.UID, y.UID), cmp.Compare(x.Namespace, y.Namespace),
			cmp.Compare(x.Name, y.Name))
	})
	a.read(services)
	a.reserve(services, nodes)
	a.keep()
	a.grantWishes()
	a.fill()
	a.conclude()
	return a.out
}

type lbAllocator struct {
	known    []*v1alpha1.LoadBalancerPool
	pools    []*poolState
	requests []*lbRequest // of Services that want addresses, in the order of their claims
	taken    map[netip.Addr][]string
	given    map[netip.Addr]*lbRequest
	out      LoadBalancers
}

func (a *lbAllocator) report(p translate.ServiceProblem) { a.out.Problems = append(a.out.Problems, p) }

// read finds out which Services want addresses, and which are to lose theirs.
func (a *lbAllocator) read(services []*corev1.Service) {
	for _, svc := range services {
		key := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
		switch {
		case a.concerns(svc):
			r := readRequest(svc, a.reportUnlessLeaving(svc))
			r.invalid = r.invalid || svc.DeletionTimestamp != nil
			a.requests = append(a.requests, r)
			a.out.Services[key] = nil
		case svc.Spec.Type != corev1.ServiceTypeLoadBalancer && a.hasOurs(svc):
			a.out.Services[key] = nil
		}
	}
}

func (a *lbAllocator) reportUnlessLeaving(svc *corev1.Service) func(translate.ServiceProblem) {
	if svc.DeletionTimestamp != nil {
		return func(translate.ServiceProblem) {}
	}
	return a.report
}

// WantsPoolAddress says whether a Service that has no address is to get one of a pool,
// if there is one.
func WantsPoolAddress(svc *corev1.Service, pools []*v1alpha1.LoadBalancerPool) bool {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || NamesNetwork(svc) {
		return false
	}
	if class := svc.Spec.LoadBalancerClass; class != nil {
		return *class == v1alpha1.LoadBalancerClass
	}
	asks := svc.Spec.LoadBalancerIP != ""
	for _, name := range []string{v1alpha1.AnnotationLoadBalancerPool, v1alpha1.AnnotationLoadBalancerIPs} {
		_, given := svc.Annotations[name]
		asks = asks || given
	}
	return slices.ContainsFunc(pools, func(p *v1alpha1.LoadBalancerPool) bool {
		return p.DeletionTimestamp == nil && (asks || p.Spec.AutoAssign == nil || *p.Spec.AutoAssign)
	})
}

// concerns says whether a Service's addresses are from here.
func (a *lbAllocator) concerns(svc *corev1.Service) bool {
	if NamesNetwork(svc) {
		return false
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil && a.hasOurs(svc) {
		return true
	}
	wants := WantsPoolAddress(svc, a.known)
	if wants && svc.Spec.LoadBalancerClass == nil && len(svc.Status.LoadBalancer.Ingress) > 0 {
		first := svc.Status.LoadBalancer.Ingress[0]
		a.report(serviceProblem(svc, "status.loadBalancer.ingress", cmp.Or(first.IP, first.Hostname),
			v1alpha1.ReasonAddressOutside,
			"is of no LoadBalancerPool, so it is left to whoever has written it; take it out of the status to get one of a pool"))
		return false
	}
	return wants
}

func (a *lbAllocator) hasOurs(svc *corev1.Service) bool {
	return slices.ContainsFunc(statusAddresses(svc), func(ip netip.Addr) bool { return findPool(a.pools, ip) != nil })
}

// reserve notes what pools must not hand out.
func (a *lbAllocator) reserve(services []*corev1.Service, nodes []*corev1.Node) {
	take := func(text, owner string) {
		if ip, err := netip.ParseAddr(text); err == nil {
			a.taken[ip] = append(a.taken[ip], owner)
		}
	}
	for _, svc := range services {
		owner := serviceText(svc)
		for _, text := range svc.Spec.ClusterIPs {
			take(text, owner)
		}
		if _, ours := a.out.Services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]; !ours {
			for _, i := range svc.Status.LoadBalancer.Ingress {
				take(i.IP, owner)
			}
		}
	}
	for _, n := range inOrder(nodes, func(*corev1.Node) int32 { return 0 }) {
		for _, address := range n.Status.Addresses {
			take(address.Address, "node "+n.Name)
		}
	}
}

// keep leaves to each Service one address of each family of those that it has and may have, that
// which it asks for first.
func (a *lbAllocator) keep() {
	for _, r := range a.requests {
		for _, is6 := range r.families {
			has := slices.DeleteFunc(slices.Clone(r.has), func(ip netip.Addr) bool {
				return ip.Is6() != is6 || a.given[ip] != nil || a.withdrawn(r, ip)
			})
			if len(has) == 0 {
				continue
			}
			keeps := has[0]
			if w, wants := r.wanted(is6); wants && slices.Contains(has, w.Addr) {
				keeps = w.Addr
			}
			a.give(r, keeps)
		}
	}
	a.withdraw()
}

// withdrawn says whether a Service has an address of a pool that is not for its namespace.
func (a *lbAllocator) withdrawn(r *lbRequest, ip netip.Addr) bool {
	p := findPool(a.pools, ip)
	return p != nil && p.excludes(r.svc.Namespace)
}

// withdraw reports what Services lose. It is not free yet: another Service may get it when the
// first has given it up.
func (a *lbAllocator) withdraw() {
	for _, r := range a.requests {
		for _, ip := range r.has {
			if !a.withdrawn(r, ip) {
				continue
			}
			a.reportUnlessLeaving(r.svc)(serviceProblem(r.svc, "status.loadBalancer.ingress", ip.String(),
				v1alpha1.ReasonNotAllowed,
				"is withdrawn: it %s", notFor(findPool(a.pools, ip), r.svc)))
			if a.given[ip] == nil {
				a.given[ip] = r
			}
		}
	}
}

func notFor(p *poolState, svc *corev1.Service) string {
	return fmt.Sprintf("is of LoadBalancerPool %s, whose spec.namespaceSelector does not select the namespace %s",
		p.Name, svc.Namespace)
}

// give makes an address a Service's. What it had before is not free yet: another one may get it
// when the first has given it up.
func (a *lbAllocator) give(r *lbRequest, ip netip.Addr) {
	a.given[ip] = r
	r.gets[ip.Is6()] = ip
}

// grantWishes gives addresses that were asked for.
func (a *lbAllocator) grantWishes() {
	for _, r := range a.requests {
		if r.invalid {
			continue
		}
		for _, w := range r.wants {
			if r.gets[w.Is6()] == w.Addr {
				continue
			}
			if reason, text := a.whyNot(r, w.Addr); reason != "" {
				a.report(serviceProblem(r.svc, w.field, w.String(), reason, "%s", text))
				continue
			}
			a.give(r, w.Addr)
		}
	}
}

// whyNot is why a Service cannot have an address that it asks for, "" if it can.
func (a *lbAllocator) whyNot(r *lbRequest, ip netip.Addr) (reason, text string) {
	p := handsOut(a.pools, ip)
	switch {
	case p == nil && findPool(a.pools, ip) != nil:
		return v1alpha1.ReasonAddressOutside, "is no longer handed out by LoadBalancerPool " +
			findPool(a.pools, ip).Name
	case p == nil:
		return v1alpha1.ReasonAddressOutside, "is of no LoadBalancerPool that is ready"
	case !p.admits(r.svc.Namespace):
		return v1alpha1.ReasonNotAllowed, notFor(p, r.svc)
	case r.pool != "" && p.Name != r.pool:
		return v1alpha1.ReasonAddressOutside, "is of LoadBalancerPool " + p.Name + ", not of " + r.pool +
			", which the Service asks for"
	}
	if other := a.given[ip]; other != nil {
		return v1alpha1.ReasonAddressTaken, "is that of " + serviceText(other.svc)
	}
	for _, owner := range a.taken[ip] {
		if owner != serviceText(r.svc) {
			return v1alpha1.ReasonAddressTaken, "is that of " + owner
		}
	}
	return "", ""
}

// fill gives each Service an address of each family that it has none of, or none of the pool that
// it asks for.
func (a *lbAllocator) fill() {
	for _, r := range a.requests {
		if r.invalid {
			continue
		}
		for _, is6 := range r.families {
			if _, wants := r.wanted(is6); !wants && !a.placed(r, is6) {
				a.fillOne(r, is6)
			}
		}
	}
}

// placed says whether a Service may stay where it is.
func (a *lbAllocator) placed(r *lbRequest, is6 bool) bool {
	ip, has := r.gets[is6]
	if !has {
		return false
	}
	p := findPool(a.pools, ip)
	return p != nil && (r.pool == "" || p.Name == r.pool)
}

func (a *lbAllocator) fillOne(r *lbRequest, is6 bool) {
	pools, p := a.choice(r)
	if p != nil {
		a.report(*p)
		return
	}
	taken := func(ip netip.Addr) bool { return a.given[ip] != nil || a.taken[ip] != nil }
	var names []string
	for _, p := range pools {
		if !p.has(is6) {
			continue
		}
		if ip, found := p.free(is6, taken); found {
			a.give(r, ip)
			return
		}
		names = append(names, p.Name)
	}
	field, value := r.asked()
	switch {
	case len(names) > 0:
		a.report(serviceProblem(r.svc, field, value, v1alpha1.ReasonExhausted,
			"no %s address is free in LoadBalancerPool %s: give it more",
			familyName(is6), strings.Join(names, ", ")))
	case !r.contentWithout(is6, pools):
		a.report(serviceProblem(r.svc, field, value, v1alpha1.ReasonExhausted,
			"no LoadBalancerPool that the Service may use has %s addresses",
			familyName(is6)))
	}
}

// contentWithout says whether a missing address of a family is no problem of a Service: if it can
// do without, and its pools have the other one.
func (r *lbRequest) contentWithout(is6 bool, pools []*poolState) bool {
	policy := r.svc.Spec.IPFamilyPolicy
	return policy != nil && *policy == corev1.IPFamilyPolicyPreferDualStack && slices.Contains(r.families, !is6) &&
		slices.ContainsFunc(pools, func(p *poolState) bool { return p.has(!is6) })
}

// asked is the field that says which pool; none if the Service leaves that open.
func (r *lbRequest) asked() (field, value string) {
	if r.pool == "" {
		return "", ""
	}
	return poolField, r.pool
}

// choice are the pools that a Service without a wish may have addresses of, or why there is none.
func (a *lbAllocator) choice(r *lbRequest) ([]*poolState, *translate.ServiceProblem) {
	field, value := r.asked()
	refuse := func(reason, format string, args ...any) ([]*poolState, *translate.ServiceProblem) {
		p := serviceProblem(r.svc, field, value, reason, format, args...)
		return nil, &p
	}
	var list []*poolState
	others := false
	for _, p := range a.pools {
		admits := p.admits(r.svc.Namespace)
		switch {
		case r.pool == "" && p.assigns() && admits:
			list = append(list, p)
		case r.pool == "":
			others = others || p.assigns()
		case r.pool == p.Name && !admits:
			return refuse(v1alpha1.ReasonNotAllowed,
				"the LoadBalancerPool does not select the namespace %s (its spec.namespaceSelector)",
				r.svc.Namespace)
		case r.pool == p.Name && !p.ready():
			return refuse(v1alpha1.ReasonPoolNotReady, "the LoadBalancerPool is not ready: %s", p.verdict.Message)
		case r.pool == p.Name:
			return []*poolState{p}, nil
		}
	}
	switch {
	case r.pool != "":
		return refuse(v1alpha1.ReasonPoolNotFound, "the LoadBalancerPool does not exist")
	case len(list) == 0 && others:
		return refuse(v1alpha1.ReasonNotAllowed,
			"no LoadBalancerPool that assigns by itself selects the namespace %s (their spec.namespaceSelector)",
			r.svc.Namespace)
	case len(list) == 0:
		return refuse(v1alpha1.ReasonPoolNotFound,
			"no LoadBalancerPool that is ready assigns by itself: make one, or name one in the annotation %s",
			v1alpha1.AnnotationLoadBalancerPool)
	}
	return list, nil
}

// conclude writes down what has come out.
func (a *lbAllocator) conclude() {
	users := map[*poolState][]string{}
	left := map[*poolState][]netip.Addr{} // what is in use of what is not handed out any more
	for _, r := range a.requests {
		var list []netip.Addr
		for _, is6 := range r.families {
			ip, has := r.gets[is6]
			if !has {
				continue
			}
			list = append(list, ip)
			p := findPool(a.pools, ip)
			if p == nil {
				continue
			}
			users[p] = append(users[p], serviceText(r.svc))
			if !contains(p.spec, ip) {
				left[p] = append(left[p], ip)
			}
		}
		a.out.Services[types.NamespacedName{Namespace: r.svc.Namespace, Name: r.svc.Name}] = list
	}
	for _, p := range a.pools {
		v := PoolVerdict{Verdict: p.verdict, Users: slices.Sorted(slices.Values(users[p])),
			Addresses: sizeOf(p.spec) + int64(len(left[p]))}
		if p.ready() {
			v.Ranges = slices.Clone(p.Spec.Addresses)
		}
		slices.SortFunc(left[p], netip.Addr.Compare)
		for _, ip := range left[p] {
			v.Ranges = append(v.Ranges, ip.String())
		}
		a.out.Pools[p.Name] = v
	}
	slices.SortFunc(a.out.Problems, func(x, y translate.ServiceProblem) int {
		return cmp.Or(cmp.Compare(x.Object, y.Object), cmp.Compare(x.Field, y.Field), cmp.Compare(x.Value, y.Value),
			cmp.Compare(x.Text, y.Text))
	})
}
