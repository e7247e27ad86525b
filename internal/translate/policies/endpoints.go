// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
)

// Endpoints makes policy.Endpoints of pods and Ports, and of the Networks and Routers that say in
// which spaces their addresses are. Objects may come in any order. They must not be changed
// afterward. It is not safe for concurrent use.
type Endpoints struct {
	pods  map[types.NamespacedName]*policyPod
	ports map[types.NamespacedName]*policyPort
	// Of pods of which the API does not have the addresses yet.
	attached map[types.NamespacedName]policy.Attachment
	networks map[string]*v1alpha1.Network
	routers  map[string]*v1alpha1.Router
	groups   map[string]bool // SecurityGroups, namespace/name

	owners addressOwners
	onNode map[string]map[types.NamespacedName]bool // pods, by node
	// foreign are addresses that pods' nodes say they have and that are not the nodes'; foreignOn
	// are the pods that have some, by node.
	foreign   map[types.NamespacedName][]foreignAddress
	foreignOn map[string]map[types.NamespacedName]bool

	podPorts map[types.NamespacedName]map[*policyPort]bool // by the pod that they are for
	onto     map[string]map[*policyPort]bool               // by Network
	spaces   map[string][]string                           // by Network; see policySpaces
	moved    bool                                          // spaces is out of date

	made     map[string]policy.Endpoint // by key
	changed  map[subject]bool
	keys     map[subject]string          // under which it is in made
	groupsOf map[subject][]string        // those that it names, if any
	naming   map[string]map[subject]bool // the subjects that name a group
	problems []EndpointProblem
	renamed  bool // problems is out of date
}

// subject is a pod, or a user's Port.
type subject struct {
	types.NamespacedName
	port bool
}

// NewEndpoints returns one that knows nothing.
func NewEndpoints() *Endpoints {
	return &Endpoints{
		pods: map[types.NamespacedName]*policyPod{}, ports: map[types.NamespacedName]*policyPort{},
		attached: map[types.NamespacedName]policy.Attachment{},
		networks: map[string]*v1alpha1.Network{}, routers: map[string]*v1alpha1.Router{}, groups: map[string]bool{},
		owners: newAddressOwners(), onNode: map[string]map[types.NamespacedName]bool{},
		foreign: map[types.NamespacedName][]foreignAddress{}, foreignOn: map[string]map[types.NamespacedName]bool{},
		podPorts: map[types.NamespacedName]map[*policyPort]bool{}, onto: map[string]map[*policyPort]bool{},
		spaces: map[string][]string{}, moved: true,
		made: map[string]policy.Endpoint{}, changed: map[subject]bool{}, keys: map[subject]string{},
		groupsOf: map[subject][]string{}, naming: map[string]map[subject]bool{},
	}
}

// SetPod adds a pod or replaces the one of its name.
func (e *Endpoints) SetPod(o *corev1.Pod) {
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	p := readPolicyPod(o)
	if p == nil {
		e.DeletePod(o.Namespace, o.Name)
		return
	}
	if before := e.pods[name]; before != nil {
		e.leaveNode(name, before)
	}
	e.pods[name] = p
	add(e.onNode, p.node, name)
	if a, is := e.attached[name]; is && (a.Subject != p.key || len(p.addresses) > 0) {
		delete(e.attached, name)
	}
	e.changed[subject{name, false}] = true
}

// DeletePod removes a pod.
func (e *Endpoints) DeletePod(namespace, name string) {
	n := types.NamespacedName{Namespace: namespace, Name: name}
	if p, known := e.pods[n]; known {
		e.leaveNode(n, p)
		delete(e.pods, n)
		delete(e.attached, n)
		e.changed[subject{n, false}] = true
	}
}

// leaveNode undoes what is known of a pod by its node.
func (e *Endpoints) leaveNode(name types.NamespacedName, p *policyPod) {
	drop(e.onNode, p.node, name)
	e.setForeign(name, p.node, nil)
}

// SetNode adds a node or replaces the one of its name. The addresses of its podCIDRs are its pods'.
func (e *Endpoints) SetNode(o *corev1.Node) {
	if e.owners.setNode(o) {
		e.lookAgain(e.onNode[o.Name])
	}
}

// DeleteNode removes a node.
func (e *Endpoints) DeleteNode(name string) {
	if _, known := e.owners.ranges[name]; known {
		delete(e.owners.ranges, name)
		e.lookAgain(e.onNode[name])
	}
}

// SetBlock adds an AddressBlock or replaces the one of its name. The addresses of a node's blocks
// are its pods'.
func (e *Endpoints) SetBlock(o *v1alpha1.AddressBlock) {
	before, now := e.owners.setBlock(o)
	if before == now {
		return
	}
	e.lookAgain(e.onNode[before.node])
	// What pods have already, one more block of their node does not change.
	e.lookAgain(e.foreignOn[now.node])
	e.lookAtClaims(before)
	e.lookAtClaims(now)
}

// lookAtClaims is for claims of single addresses in a block that has come or gone.
func (e *Endpoints) lookAtClaims(b ownedBlock) {
	for _, node := range e.owners.claimants(b) {
		e.lookAgain(e.onNode[node])
	}
}

// DeleteBlock removes an AddressBlock.
func (e *Endpoints) DeleteBlock(name string) {
	before := e.owners.deleteBlock(name)
	e.lookAgain(e.onNode[before.node])
	e.lookAtClaims(before)
}

func (e *Endpoints) lookAgain(pods map[types.NamespacedName]bool) {
	for name := range pods {
		e.changed[subject{name, false}] = true
	}
}

// SetAttachment sets the addresses of a pod as its node's agent reports them. They count until the
// API has some. They are ignored for a pod that is not known to be on that node.
func (e *Endpoints) SetAttachment(node string, a policy.Attachment) {
	name := types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
	if p := e.pods[name]; p != nil && p.node == node && p.key == a.Subject && len(p.addresses) == 0 {
		e.attached[name] = a
		e.changed[subject{name, false}] = true
	}
}

// SetPort adds a Port or replaces the one of its name.
func (e *Endpoints) SetPort(o *v1alpha1.Port) {
	e.DeletePort(o.Namespace, o.Name)
	p := readPolicyPort(o)
	e.ports[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = p
	add(e.onto, p.network, p)
	if pod, of := p.ofPod(); of {
		add(e.podPorts, pod, p)
	}
	e.changed[p.subject()] = true
}

// DeletePort removes a Port.
func (e *Endpoints) DeletePort(namespace, name string) {
	n := types.NamespacedName{Namespace: namespace, Name: name}
	p, known := e.ports[n]
	if !known {
		return
	}
	delete(e.ports, n)
	drop(e.onto, p.network, p)
	if pod, of := p.ofPod(); of {
		drop(e.podPorts, pod, p)
	}
	e.changed[p.subject()] = true
}

// ofPod is the pod that the Port is for, if it is not a user's.
func (p *policyPort) ofPod() (types.NamespacedName, bool) {
	if p.pod == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.namespace, Name: p.pod.Name}, true
}

// subject is the owner of the Endpoint that the Port is in.
func (p *policyPort) subject() subject {
	if pod, of := p.ofPod(); of {
		return subject{pod, false}
	}
	return subject{types.NamespacedName{Namespace: p.namespace, Name: p.name}, true}
}

func add[K, V comparable](index map[K]map[V]bool, key K, value V) {
	if index[key] == nil {
		index[key] = map[V]bool{}
	}
	index[key][value] = true
}

func drop[K, V comparable](index map[K]map[V]bool, key K, value V) {
	delete(index[key], value)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// SetNetwork adds a Network or replaces the one of its name.
func (e *Endpoints) SetNetwork(o *v1alpha1.Network) {
	old := e.networks[o.Name]
	e.networks[o.Name] = o
	for _, node := range e.owners.setNetwork(o) {
		e.lookAgain(e.onNode[node])
	}
	e.moved = e.moved || old == nil || old.Spec.Type != o.Spec.Type || old.Spec.Router != o.Spec.Router ||
		old.Status.Router != o.Status.Router ||
		translate.Admitted(old.Status.ID, old.Status.Conditions) != translate.Admitted(o.Status.ID, o.Status.Conditions)
}

// DeleteNetwork removes a Network.
func (e *Endpoints) DeleteNetwork(name string) {
	if _, known := e.networks[name]; known {
		delete(e.networks, name)
		delete(e.owners.pools, name)
		e.moved = true
	}
}

// SetRouter adds a Router or replaces the one of its name.
func (e *Endpoints) SetRouter(o *v1alpha1.Router) {
	old := e.routers[o.Name]
	e.routers[o.Name] = o
	e.moved = e.moved || old == nil || !slices.Equal(old.Spec.ImportRouteTargets, o.Spec.ImportRouteTargets) ||
		!slices.Equal(old.Spec.ExportRouteTargets, o.Spec.ExportRouteTargets) ||
		translate.Admitted(old.Status.ID, old.Status.Conditions) != translate.Admitted(o.Status.ID, o.Status.Conditions)
}

// DeleteRouter removes a Router.
func (e *Endpoints) DeleteRouter(name string) {
	if _, known := e.routers[name]; known {
		delete(e.routers, name)
		e.moved = true
	}
}

// SetSecurityGroup tells that there is one, for Problems.
func (e *Endpoints) SetSecurityGroup(namespace, name string) {
	if key := namespace + "/" + name; !e.groups[key] {
		e.groups[key], e.renamed = true, true
	}
}

// DeleteSecurityGroup tells that there is one no more.
func (e *Endpoints) DeleteSecurityGroup(namespace, name string) {
	delete(e.groups, namespace+"/"+name)
	e.renamed = true
}

// Changes returns the Endpoints that are new or other ones than at the last call, and the keys of
// those that are gone, both sorted by key.
func (e *Endpoints) Changes() (set []policy.Endpoint, gone []string) {
	if e.moved {
		e.move()
	}
	left := map[string]bool{}
	for s := range e.changed {
		endpoint, is := e.make(s)
		if old, had := e.keys[s]; had && (!is || old != endpoint.Key) {
			left[old] = true
			delete(e.keys, s)
		}
		e.name(s, endpoint.SecurityGroups)
		if !is {
			continue
		}
		e.keys[s] = endpoint.Key
		if before, known := e.made[endpoint.Key]; !known || !reflect.DeepEqual(before, endpoint) {
			e.made[endpoint.Key] = endpoint
			set = append(set, endpoint)
		}
	}
	// One that is gone under one name may be there under another.
	for s := range e.changed {
		if key, is := e.keys[s]; is {
			delete(left, key)
		}
	}
	e.changed = map[subject]bool{} // to clear it takes as long as when it was largest
	for key := range left {
		delete(e.made, key)
	}
	slices.SortFunc(set, func(a, b policy.Endpoint) int { return cmp.Compare(a.Key, b.Key) })
	return set, slices.Sorted(maps.Keys(left))
}

// move recomputes the address spaces, and updates the subjects that have moved to another one.
func (e *Endpoints) move() {
	e.moved = false
	now := policySpaces(slices.Collect(maps.Values(e.routers)), slices.Collect(maps.Values(e.networks)))
	for network, ports := range e.onto {
		if slices.Equal(e.spaces[network], now[network]) {
			continue
		}
		for p := range ports {
			e.changed[p.subject()] = true
		}
	}
	for node, networks := range e.owners.of {
		for network := range networks {
			if !slices.Equal(e.spaces[network], now[network]) {
				e.lookAgain(e.onNode[node])
				break
			}
		}
	}
	e.spaces = now
}

// make is the Endpoint of a pod or a user's Port; false if it is not there.
func (e *Endpoints) make(s subject) (policy.Endpoint, bool) {
	if s.port {
		p, there := e.ports[s.NamespacedName]
		if !there || p.pod != nil {
			return policy.Endpoint{}, false
		}
		return policy.Endpoint{
			Key: intent.PortSubject(p.namespace, p.name), Namespace: p.namespace, Name: p.name, Labels: p.labels,
			Node:   p.node,
			Places: sortPlaces(p.places(e.spaces[p.network])), SecurityGroups: p.groups,
		}, true
	}
	pod, there := e.pods[s.NamespacedName]
	if !there {
		return policy.Endpoint{}, false
	}
	places := e.placesOf(s.NamespacedName, pod)
	return policy.Endpoint{
		Key: pod.key, Namespace: s.Namespace, Name: s.Name, Labels: pod.labels, Node: pod.node,
		Places: sortPlaces(places), NamedPorts: pod.namedPorts, SecurityGroups: pod.groups,
	}, true
}

// EndpointProblem is a Problem of a pod or of a user's Port.
type EndpointProblem struct {
	types.NamespacedName
	UID  string
	Port bool // else a pod
	translate.Problem
}

// name takes note of the SecurityGroups that a pod or a Port names now.
func (e *Endpoints) name(s subject, groups []string) {
	e.renamed = e.renamed || len(groups)+len(e.groupsOf[s]) > 0
	for _, g := range e.groupsOf[s] {
		drop(e.naming, g, s)
	}
	delete(e.groupsOf, s)
	for _, g := range groups {
		e.groupsOf[s] = groups
		add(e.naming, g, s)
	}
}

// Problems are those of the SecurityGroups that pods and Ports named at the last call of Changes,
// such as that they do not exist, which closes them, and addresses of pods that are not their
// node's. They are sorted, and must not be changed. Without news it is the same slice again.
func (e *Endpoints) Problems() []EndpointProblem {
	if e.renamed {
		e.problems, e.renamed = e.findProblems(), false
	}
	return e.problems
}

func (e *Endpoints) findProblems() []EndpointProblem {
	problems := e.foreignProblems()
	for group, subjects := range e.naming {
		_, name, _ := strings.Cut(group, "/")
		reason := translate.NotFound
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			reason = translate.Malformed
		} else if e.groups[group] {
			continue
		}
		for s := range subjects {
			problem := EndpointProblem{NamespacedName: s.NamespacedName, Port: s.port, Problem: translate.Problem{
				Object: "pod " + s.String(), Field: "metadata.annotations[" + v1alpha1.AnnotationSecurityGroups + "]",
				Value: name, Reason: reason,
				Text: "is not the name of a SecurityGroup of the namespace, so all but replies and what its node sends is denied; create the group, or name another",
			}}
			if s.port {
				problem.Object, problem.Field = "port "+s.String(), "spec.securityGroups"
			}
			if pod := e.pods[s.NamespacedName]; !s.port && pod != nil {
				problem.UID = pod.uid
			} else if port := e.ports[s.NamespacedName]; s.port && port != nil {
				problem.UID = port.uid
			} else {
				continue // it has just gone
			}
			problems = append(problems, problem)
		}
	}
	slices.SortFunc(problems, func(a, b EndpointProblem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Value, b.Value))
	})
	return problems
}
