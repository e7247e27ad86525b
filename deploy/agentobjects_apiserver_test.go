// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package deploy

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// object is one that an administrator makes.
type object struct {
	resource schema.GroupVersionResource
	value    map[string]any
}

func (o object) name() (namespace, name string) {
	u := unstructured.Unstructured{Object: o.value}
	return u.GetNamespace(), u.GetName()
}

// write is a request.
type write func(ctx context.Context, c dynamic.Interface) error

func create(o object) write {
	return func(ctx context.Context, c dynamic.Interface) error {
		namespace, _ := o.name()
		_, err := at(c, o.resource, namespace).Create(ctx, &unstructured.Unstructured{Object: o.value}, metav1.CreateOptions{})
		return err
	}
}

func remove(o object) write {
	return func(ctx context.Context, c dynamic.Interface) error {
		namespace, name := o.name()
		return at(c, o.resource, namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
}

func patch(o object, change map[string]any, subresources ...string) write {
	return func(ctx context.Context, c dynamic.Interface) error {
		namespace, name := o.name()
		text, err := json.Marshal(change)
		if err != nil {
			return err
		}
		_, err = at(c, o.resource, namespace).Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{}, subresources...)
		return err
	}
}

func patchStatus(o object, status map[string]any) write {
	return patch(o, map[string]any{"status": status}, "status")
}

func at(c dynamic.Interface, resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.Resource(resource)
	}
	return c.Resource(resource).Namespace(namespace)
}

// node is one of the cluster's, which are there.
func node(name string) object {
	return object{nodeResource, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}}
}

func pod(name, node string) object {
	return object{podResource, map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": tenant, "name": name, "labels": map[string]any{"app": name},
			"annotations": map[string]any{"example.org/kept": "yes"},
		},
		"spec":   map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "c", "image": "i"}}},
		"status": map[string]any{"phase": "Running", "podIP": "10.244.9.9", "podIPs": []any{map[string]any{"ip": "10.244.9.9"}}},
	}}
}

// podPort is a Port as an agent makes it for a pod.
func podPort(name, node string) object {
	return object{portResource, map[string]any{
		"apiVersion": "coelan.io/v1alpha1", "kind": "Port",
		"metadata": map[string]any{
			"namespace": tenant, "name": name, "labels": map[string]any{"coelan.io/managed-by": "coelan-agent", "coelan.io/node": node},
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}},
		},
		"spec": map[string]any{
			"network": "blue", "node": node, "addresses": []any{"10.1.0.9"}, "pod": map[string]any{"name": "p", "uid": "u", "interface": "eth0"},
		},
		"status": map[string]any{"phase": "Bound", "node": node, "mac": "0a:58:0a:01:00:09", "addresses": []any{"10.1.0.9"}},
	}}
}

// dynamicPort is the Port that the agent of a node has made for a machine.
func dynamicPort(name, node string) object {
	return object{portResource, map[string]any{
		"apiVersion": "coelan.io/v1alpha1", "kind": "Port",
		"metadata": map[string]any{
			"namespace": tenant, "name": name, "labels": map[string]any{"coelan.io/managed-by": "coelan-agent", "coelan.io/node": node},
		},
		"spec":   map[string]any{"network": "blue", "node": node, "mac": "52:54:00:00:00:09", "dynamic": true},
		"status": map[string]any{"phase": "Bound", "node": node, "mac": "52:54:00:00:00:09", "addresses": []any{"10.1.0.9"}},
	}}
}

// userPort is a Port of a user, with the node of its spec and the one that has bound it.
func userPort(name, only, bound string) object {
	o := object{portResource, map[string]any{
		"apiVersion": "coelan.io/v1alpha1", "kind": "Port",
		"metadata": map[string]any{"namespace": tenant, "name": name},
		"spec":     map[string]any{"network": "blue"},
		"status":   map[string]any{"phase": "Ready", "mac": "0a:58:0a:01:00:08", "addresses": []any{"10.1.0.8"}},
	}}
	if only != "" {
		o.value["spec"].(map[string]any)["node"] = only
	}
	if bound != "" {
		status := o.value["status"].(map[string]any)
		status["phase"], status["node"], status["boundTime"] = "Bound", bound, "2026-01-02T03:04:05Z"
	}
	return o
}

func block(name, cidr, node, port string) object {
	spec := map[string]any{"network": "blue", "cidr": cidr}
	if node != "" {
		spec["node"] = node
	}
	if port != "" {
		spec["port"] = port
	}
	return object{blockResource, map[string]any{
		"apiVersion": "coelan.io/v1alpha1", "kind": "AddressBlock",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"coelan.io/managed-by": "coelan-agent"}}, "spec": spec,
	}}
}

// shared is the block of an address that any node may be active for, one of which has reported that
// it is unless it is empty.
func shared(name, cidr, active string) object {
	o := with(block(name, cidr, "", ""), "red/*", "spec", "gateway")
	if active != "" {
		o = with(o, active, "status", "activeNode")
	}
	return o
}

func event(name, component, host string) object {
	return object{eventResource, map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"namespace": tenant, "name": name},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": tenant, "name": "p"},
		"type":           "Warning", "reason": "R", "message": "m", "count": int64(1),
		"source": map[string]any{"component": component, "host": host}, "reportingComponent": component, "reportingInstance": host,
	}}
}

// with is a copy of an object with another value at a path.
func with(o object, value any, path ...string) object {
	copied := runtime.DeepCopyJSON(o.value)
	if err := unstructured.SetNestedField(copied, value, path...); err != nil {
		panic(err)
	}
	return object{o.resource, copied}
}

func granted(status, message string) map[string]any {
	return map[string]any{"conditions": []any{map[string]any{
		"type": "Granted", "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z",
	}}}
}

// answered has an answer already.
func answered(o object) object {
	return with(o, granted("True", "node worker2, which has the block"), "status")
}

func annotations(values map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": values}}
}

const (
	statusKey = "k8s.v1.cni.cncf.io/network-status"
	mtuKey    = "coelan.io/mtu"
	uplinkKey = "coelan.io/physical-networks"
	configKey = "coelan.io/network-config"
)

func without(o object, path ...string) object {
	copied := runtime.DeepCopyJSON(o.value)
	unstructured.RemoveNestedField(copied, path...)
	return object{o.resource, copied}
}
