// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

// Kinds of targets of endpoints.
const (
	kindPod  = "Pod"
	kindPort = "Port"
)

// memberUID is the uid, as the leaf-list endpoints has it, of the pod or Port that an endpoint is;
// empty if it is none.
func memberUID(w *World, e *discoveryv1.Endpoint) string {
	ref := e.TargetRef
	if ref == nil {
		return ""
	}
	uid := string(ref.UID)
	if ref.Kind == kindPort {
		key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		p := w.Ports[key]
		if p == nil || ref.UID != "" && p.UID != ref.UID || w.hidden[key] {
			return ""
		}
		uid = podUID(p)
	}
	id, err := uuid.Parse(uid)
	known := ref.Kind == kindPod || ref.Kind == kindPort
	if err != nil || !known || !strings.EqualFold(uid, id.String()) {
		return ""
	}
	return id.String()
}

// memberUIDs are the uids of all pods and Ports in slices.
func memberUIDs(w *World, of []*discoveryv1.EndpointSlice) []string {
	all := map[string]bool{}
	for _, slice := range of {
		for i := range slice.Endpoints {
			if uid := memberUID(w, &slice.Endpoints[i]); uid != "" {
				all[uid] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// setMembers makes the pods and Ports of the leaf-list endpoints be a Service's endpoints, and
// removes those that are no longer in it.
func setMembers(w *World, s *corev1.Service, e *serviceEntry, portsChanged bool) error {
	of := slicesOf(w, keyOf(s))
	wanted := slices.Sorted(slices.Values(e.Endpoints))
	if now := memberUIDs(w, of); slices.Equal(now, wanted) && (!portsChanged || len(now) == 0) {
		return nil
	}
	edit := editSlices(s, of)
	var ports []discoveryv1.EndpointPort
	if len(wanted) > 0 {
		var err error
		if ports, err = slicePorts(s); err != nil {
			return err
		}
	}
	there := map[string]bool{}
	for _, slice := range edit.list {
		same := reflect.DeepEqual(slice.Ports, ports)
		slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(endpoint discoveryv1.Endpoint) bool {
			uid := memberUID(w, &endpoint)
			if stays := uid == "" || same && slices.Contains(wanted, uid); !stays {
				return true
			}
			there[uid] = true
			return false
		})
	}
	for _, uid := range wanted {
		if there[uid] {
			continue
		}
		list, err := membersOf(w, uid)
		if err != nil {
			return err
		}
		for _, endpoint := range list {
			edit.add(endpoint.Addresses[0], endpoint, ports)
		}
	}
	edit.finish(w)
	return nil
}

// membersOf are the endpoints that a pod of Kubernetes, or the Ports of an entry of pod:coe, are:
// one for each address.
func membersOf(w *World, uid string) ([]discoveryv1.Endpoint, error) {
	var list []discoveryv1.Endpoint
	if p := w.Pods[types.UID(uid)]; p != nil {
		ref := &corev1.ObjectReference{Kind: kindPod, Namespace: p.Namespace, Name: p.Name, UID: p.UID}
		for _, ip := range p.Status.PodIPs {
			list = append(list, member(ip.IP, optional(p.Spec.NodeName), ref))
		}
	}
	for _, p := range sortedPorts(w, true) {
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		if podUID(p) != uid || w.hidden[key] {
			continue
		}
		ref := &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPort,
			Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		}
		addresses := p.Status.Addresses
		if len(addresses) == 0 {
			addresses = p.Spec.Addresses
		}
		for _, a := range addresses {
			list = append(list, member(canonicalAddress(a), optional(p.Status.Node), ref))
		}
	}
	if len(list) == 0 {
		return nil, invalid("endpoints", fmt.Sprintf("there is no pod and no Port of the uid %s with an address", uid))
	}
	return list, nil
}

func member(address string, node *string, ref *corev1.ObjectReference) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: node, TargetRef: ref}
}
