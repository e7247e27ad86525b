// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/policies"
)

// changedPolicies are policies that have changed: the object, or nil if it is gone, and what is
// wrong with it.
type changedPolicies struct {
	objects  map[intent.PolicyRef]client.Object
	problems map[intent.PolicyRef][]translate.Problem
}

// record makes findings readable for others, and reports whether they differ from the last ones.
func (p *Feed) record(changed changedPolicies, ofEndpoints []policies.EndpointProblem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	differ := len(changed.objects) > 0 || !reflect.DeepEqual(p.ofEndpoints, ofEndpoints)
	for ref, o := range changed.objects {
		delete(p.objects, ref)
		delete(p.problems, ref)
		if o != nil {
			p.objects[ref] = o
		}
		if problems := changed.problems[ref]; len(problems) > 0 {
			p.problems[ref] = problems
		}
	}
	p.ofEndpoints = ofEndpoints
	return differ
}

// change returns what an event means for the Engine; nil: nothing at once. What pods and Ports mean
// comes from all of them together.
func (p *Feed) change(e event, changed *changedPolicies) func(*policy.Engine) {
	namespace, name := e.object.GetNamespace(), e.object.GetName()
	switch o := e.object.(type) {
	case *corev1.Namespace:
		if e.gone {
			return remove(p.namespaces, name, (*policy.Engine).DeleteNamespace)
		}
		return set(p.namespaces, name, policies.Namespace(o), (*policy.Engine).SetNamespace)
	case *corev1.Node:
		if e.gone {
			p.endpoints.DeleteNode(name)
			return remove(p.nodes, name, (*policy.Engine).DeleteNode)
		}
		p.endpoints.SetNode(o)
		return set(p.nodes, name, policies.Node(o, p.nodeAddress), (*policy.Engine).SetNode)
	case *corev1.Pod:
		if e.gone {
			p.endpoints.DeletePod(namespace, name)
		} else {
			p.endpoints.SetPod(o)
		}
	case *v1alpha1.Port:
		if e.gone {
			p.endpoints.DeletePort(namespace, name)
		} else {
			p.endpoints.SetPort(o)
		}
	case *v1alpha1.AddressBlock:
		if e.gone {
			p.endpoints.DeleteBlock(name)
		} else {
			p.endpoints.SetBlock(o)
		}
	case *v1alpha1.Network:
		if e.gone {
			p.endpoints.DeleteNetwork(name)
		} else {
			p.endpoints.SetNetwork(o)
		}
	case *v1alpha1.Router:
		if e.gone {
			p.endpoints.DeleteRouter(name)
		} else {
			p.endpoints.SetRouter(o)
		}
	case *networkingv1.NetworkPolicy:
		return p.policy(policies.NetworkPolicyRef(namespace, name), e, changed)
	case *v1alpha1.SecurityGroup:
		if e.gone {
			p.endpoints.DeleteSecurityGroup(namespace, name)
		} else {
			p.endpoints.SetSecurityGroup(namespace, name)
		}
		return p.policy(policies.SecurityGroupRef(namespace, name), e, changed)
	case *unstructured.Unstructured:
		return p.policy(policies.ClusterNetworkPolicyRef(name), e, changed)
	}
	return nil
}

// set changes nothing if the value is as before: nodes are written all the time.
func set[T any](known map[string]T, name string, now T, set func(*policy.Engine, T)) func(*policy.Engine) {
	if before, is := known[name]; is && reflect.DeepEqual(before, now) {
		return nil
	}
	known[name] = now
	return func(e *policy.Engine) { set(e, now) }
}

func remove[T any](known map[string]T, name string, remove func(*policy.Engine, string)) func(*policy.Engine) {
	delete(known, name)
	return func(e *policy.Engine) { remove(e, name) }
}

// policy translates one. A status alone changes nothing.
func (p *Feed) policy(ref intent.PolicyRef, e event, changed *changedPolicies) func(*policy.Engine) {
	if e.gone {
		changed.objects[ref] = nil
		return func(e *policy.Engine) { e.DeletePolicy(ref) }
	}
	o := e.object
	changed.objects[ref] = o
	before, had := p.known(ref)
	translated, problems := translatePolicy(o)
	changed.problems[ref] = problems
	if had && before.GetUID() == o.GetUID() && before.GetGeneration() == o.GetGeneration() && o.GetGeneration() != 0 {
		return nil
	}
	return func(e *policy.Engine) { e.SetPolicy(translated) }
}

func (p *Feed) known(ref intent.PolicyRef) (client.Object, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, is := p.objects[ref]
	return o, is
}

func translatePolicy(o client.Object) (policy.Policy, []translate.Problem) {
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		return policies.NetworkPolicy(o)
	case *v1alpha1.SecurityGroup:
		return policies.SecurityGroup(o)
	}
	return policies.ClusterNetworkPolicy(policyapi.Parse(o.(*unstructured.Unstructured)))
}
