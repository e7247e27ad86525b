// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/wellknown"
)

// attached completes Ports with what follows from their pods and namespaces: the Egress that a pod
// leaves by, whether denials are logged, and the UID that a static pod's node knows. A pod that has
// ended has no Port: nothing sends, and policies do not know it any more.
type attached struct {
	auditAll   bool
	namespaces map[string]*corev1.Namespace
	pods       map[string]*corev1.Pod // by namespace/name
	trusted    map[string]struct{}    // ids of users' Ports that may send as a DHCP server
	selectors  translate.EgressSelectors

	ports       map[string]intent.Port // as the PortSet has them, by id
	ofPod       map[string]map[string]struct{}
	ofNamespace map[string]map[string]struct{}
	touched     map[string]struct{} // ids
	// over are the UIDs of pods that have ended, by the ids of their Ports: the pod may be gone
	// before its Port.
	over map[string]string
}

func newAttached(o Settings) *attached {
	return &attached{
		auditAll: o.AuditDenied, namespaces: map[string]*corev1.Namespace{}, pods: map[string]*corev1.Pod{},
		trusted: map[string]struct{}{}, ports: map[string]intent.Port{}, ofPod: map[string]map[string]struct{}{},
		ofNamespace: map[string]map[string]struct{}{}, touched: map[string]struct{}{}, over: map[string]string{},
	}
}

func (a *attached) setNamespace(name string, o *corev1.Namespace) {
	set(a.namespaces, name, o)
	maps.Copy(a.touched, a.ofNamespace[name])
}

func (a *attached) setPod(key string, o *corev1.Pod) {
	set(a.pods, key, o)
	maps.Copy(a.touched, a.ofPod[key])
}

// setObject takes what a Port says of itself that is no matter of addresses.
func (a *attached) setObject(id string, o *v1alpha1.Port) {
	delete(a.trusted, id)
	if o != nil && o.Spec.Trusted && o.Spec.Pod == nil {
		a.trusted[id] = struct{}{}
	}
	a.touched[id] = struct{}{}
}

// apply brings intent to what has changed of Ports, and of what they are completed with.
func (a *attached) apply(tx *intent.Tx, ports translate.Change[intent.Port], selectors translate.EgressSelectors) {
	for _, p := range ports.Gone {
		a.remove(p.ID)
		delete(a.over, p.ID)
		tx.DeletePort(p.ID)
	}
	for _, p := range ports.Set {
		a.remove(p.ID)
		a.add(p)
		a.touched[p.ID] = struct{}{}
	}
	if !same(a.selectors, selectors) {
		a.selectors = selectors
		for id := range a.ports {
			a.touched[id] = struct{}{}
		}
	}
	for id := range a.touched {
		if p, ok := a.ports[id]; ok && a.ended(p) {
			tx.DeletePort(id)
		} else if ok {
			tx.SetPort(a.complete(p))
		}
	}
	clear(a.touched)
}

// same reports whether an EgressSet has returned the same selectors twice, which it makes anew when
// they may differ.
func same(a, b translate.EgressSelectors) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (a *attached) add(p intent.Port) {
	a.ports[p.ID] = p
	index(a.ofNamespace, p.Namespace, p.ID)
	if p.Interface != "" {
		index(a.ofPod, p.Namespace+"/"+p.Pod, p.ID)
	}
}

func (a *attached) remove(id string) {
	p, ok := a.ports[id]
	if !ok {
		return
	}
	delete(a.ports, id)
	unindex(a.ofNamespace, p.Namespace, id)
	unindex(a.ofPod, p.Namespace+"/"+p.Pod, id)
}

// ended reports whether a Port is that of a pod that has ended and waits to be removed.
func (a *attached) ended(p intent.Port) bool {
	if p.Interface == "" {
		return false
	}
	if pod := a.pods[p.Namespace+"/"+p.Pod]; pod != nil && string(pod.UID) == p.UID && translate.Ended(pod) {
		a.over[p.ID] = p.UID
	}
	return a.over[p.ID] == p.UID && p.UID != ""
}

func (a *attached) complete(p intent.Port) intent.Port {
	namespace := a.namespaces[p.Namespace]
	p.Audited = a.auditAll || namespace != nil && namespace.Annotations[v1alpha1.AnnotationAuditDenied] == "true"
	if p.Interface == "" {
		_, p.Trusted = a.trusted[p.ID]
		return p
	}
	if pod := a.pods[p.Namespace+"/"+p.Pod]; pod != nil && string(pod.UID) == p.UID {
		p.Egress, p.UID = a.selectors.Of(namespace, pod), wellknown.PodUID(pod)
	}
	return p
}

func index(of map[string]map[string]struct{}, key, id string) {
	if of[key] == nil {
		of[key] = map[string]struct{}{}
	}
	of[key][id] = struct{}{}
}

func unindex(of map[string]map[string]struct{}, key, id string) {
	delete(of[key], id)
	if len(of[key]) == 0 {
		delete(of, key)
	}
}
