// SPDX-License-Identifier: Apache-2.0

package translate

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
)

// PolicyEndpoints makes policy.Endpoints of pods and Ports, and of the Networks and Routers that say in which spaces their
// addresses are. Objects may come in any order. They must not be changed afterwards. It is not safe for concurrent use.
type PolicyEndpoints struct {
	pods     map[types.NamespacedName]*policyPod
	ports    map[types.NamespacedName]*policyPort
	attached map[types.NamespacedName]policy.Attachment // of pods whose addresses the API does not have yet
	networks map[string]*v1alpha1.Network
	routers  map[string]*v1alpha1.Router
	groups   map[string]bool // SecurityGroups, namespace/name

	podPorts map[types.NamespacedName]map[*policyPort]bool // by the pod that they are for
	onto     map[string]map[*policyPort]bool               // by Network
	spaces   map[string][]string                           // by Network; see policySpaces
	moved    bool                                          // spaces is out of date

	made     map[string]policy.Endpoint // by key
	changed  map[subject]bool
	keys     map[subject]string          // under which it is in made
	groupsOf map[subject][]string        // those that it names, if any
	naming   map[string]map[subject]bool // who names a group
	problems []EndpointProblem
	renamed  bool // problems is out of date
}

// subject is a pod, or a user's Port.
type subject struct {
	types.NamespacedName
	port bool
}

// NewPolicyEndpoints returns one that knows nothing.
func NewPolicyEndpoints() *PolicyEndpoints {
	return &PolicyEndpoints{
		pods: map[types.NamespacedName]*policyPod{}, ports: map[types.NamespacedName]*policyPort{},
		attached: map[types.NamespacedName]policy.Attachment{},
		networks: map[string]*v1alpha1.Network{}, routers: map[string]*v1alpha1.Router{}, groups: map[string]bool{},
		podPorts: map[types.NamespacedName]map[*policyPort]bool{}, onto: map[string]map[*policyPort]bool{},
		spaces: map[string][]string{}, moved: true,
		made: map[string]policy.Endpoint{}, changed: map[subject]bool{}, keys: map[subject]string{},
		groupsOf: map[subject][]string{}, naming: map[string]map[subject]bool{},
	}
}

// SetPod adds a pod or replaces the one of its name.
func (e *PolicyEndpoints) SetPod(o *corev1.Pod) {
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	p := readPolicyPod(o)
	if p == nil {
		e.DeletePod(o.Namespace, o.Name)
		return
	}
	e.pods[name] = p
	if a, is := e.attached[name]; is && (a.Subject != p.key || len(p.addresses) > 0) {
		delete(e.attached, name)
	}
	e.changed[subject{name, false}] = true
}

// DeletePod forgets a pod.
func (e *PolicyEndpoints) DeletePod(namespace, name string) {
	n := types.NamespacedName{Namespace: namespace, Name: name}
	if _, known := e.pods[n]; known {
		delete(e.pods, n)
		delete(e.attached, n)
		e.changed[subject{n, false}] = true
	}
}

// SetAttachment tells the addresses of a pod, as its node's agent says. They count until the API has some. Of a pod that is not known
// to be on that node, nobody is believed.
func (e *PolicyEndpoints) SetAttachment(node string, a policy.Attachment) {
	name := types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
	if p := e.pods[name]; p != nil && p.node == node && p.key == a.Subject && len(p.addresses) == 0 {
		e.attached[name] = a
		e.changed[subject{name, false}] = true
	}
}

// SetPort adds a Port or replaces the one of its name.
func (e *PolicyEndpoints) SetPort(o *v1alpha1.Port) {
	e.DeletePort(o.Namespace, o.Name)
	p := readPolicyPort(o)
	e.ports[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = p
	add(e.onto, p.network, p)
	if pod, of := p.ofPod(); of {
		add(e.podPorts, pod, p)
	}
	e.changed[p.subject()] = true
}

// DeletePort forgets a Port.
func (e *PolicyEndpoints) DeletePort(namespace, name string) {
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

// subject is whose Endpoint the Port is in.
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
func (e *PolicyEndpoints) SetNetwork(o *v1alpha1.Network) {
	old := e.networks[o.Name]
	e.networks[o.Name] = o
	e.moved = e.moved || old == nil || old.Spec.Type != o.Spec.Type || old.Spec.Router != o.Spec.Router || old.Status.Router != o.Status.Router ||
		admitted(old.Status.ID, old.Status.Conditions) != admitted(o.Status.ID, o.Status.Conditions)
}

// DeleteNetwork forgets a Network.
func (e *PolicyEndpoints) DeleteNetwork(name string) {
	if _, known := e.networks[name]; known {
		delete(e.networks, name)
		e.moved = true
	}
}

// SetRouter adds a Router or replaces the one of its name.
func (e *PolicyEndpoints) SetRouter(o *v1alpha1.Router) {
	old := e.routers[o.Name]
	e.routers[o.Name] = o
	e.moved = e.moved || old == nil || !slices.Equal(old.Spec.ImportRouteTargets, o.Spec.ImportRouteTargets) ||
		!slices.Equal(old.Spec.ExportRouteTargets, o.Spec.ExportRouteTargets) ||
		admitted(old.Status.ID, old.Status.Conditions) != admitted(o.Status.ID, o.Status.Conditions)
}

// DeleteRouter forgets a Router.
func (e *PolicyEndpoints) DeleteRouter(name string) {
	if _, known := e.routers[name]; known {
		delete(e.routers, name)
		e.moved = true
	}
}

// SetSecurityGroup tells that there is one, for Problems.
func (e *PolicyEndpoints) SetSecurityGroup(namespace, name string) {
	if key := namespace + "/" + name; !e.groups[key] {
		e.groups[key], e.renamed = true, true
	}
}

// DeleteSecurityGroup tells that there is one no more.
func (e *PolicyEndpoints) DeleteSecurityGroup(namespace, name string) {
	delete(e.groups, namespace+"/"+name)
	e.renamed = true
}

// Changes returns the Endpoints that are new or other ones than at the last call, and the keys of those that are gone, both
// sorted by key.
func (e *PolicyEndpoints) Changes() (set []policy.Endpoint, gone []string) {
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

// move finds the spaces anew, and whose addresses are in others now.
func (e *PolicyEndpoints) move() {
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
	e.spaces = now
}

// make is the Endpoint of a pod or a user's Port; false if it is not there.
func (e *PolicyEndpoints) make(s subject) (policy.Endpoint, bool) {
	if s.port {
		p, there := e.ports[s.NamespacedName]
		if !there || p.pod != nil {
			return policy.Endpoint{}, false
		}
		return policy.Endpoint{
			Key: intent.PortSubject(p.namespace, p.name), Namespace: p.namespace, Name: p.name, Labels: p.labels, Node: p.node,
			Places: sortPlaces(p.places(e.spaces[p.network])), SecurityGroups: p.groups,
		}, true
	}
	pod, there := e.pods[s.NamespacedName]
	if !there {
		return policy.Endpoint{}, false
	}
	places := append(inCluster(pod.addresses, false), inCluster(e.attached[s.NamespacedName].Addresses, false)...)
	for p := range e.podPorts[s.NamespacedName] {
		if p.pod.UID == pod.uid {
			places = append(places, p.places(e.spaces[p.network])...)
		}
	}
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
	Problem
}

// name takes note of the SecurityGroups that a pod or a Port names now.
func (e *PolicyEndpoints) name(s subject, groups []string) {
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

// Problems are those of the SecurityGroups that pods and Ports named at the last call of Changes: such as that they do not exist,
// which closes them. They are sorted, and must not be changed. Without news it is the same slice again.
func (e *PolicyEndpoints) Problems() []EndpointProblem {
	if e.renamed {
		e.problems, e.renamed = e.findProblems(), false
	}
	return e.problems
}

func (e *PolicyEndpoints) findProblems() []EndpointProblem {
	var problems []EndpointProblem
	for group, subjects := range e.naming {
		_, name, _ := strings.Cut(group, "/")
		reason := NotFound
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			reason = Malformed
		} else if e.groups[group] {
			continue
		}
		for s := range subjects {
			problem := EndpointProblem{NamespacedName: s.NamespacedName, Port: s.port, Problem: Problem{
				Object: "pod " + s.String(), Field: "metadata.annotations[" + v1alpha1.AnnotationSecurityGroups + "]", Value: name, Reason: reason,
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
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Value, b.Value))
	})
	return problems
}
