// SPDX-License-Identifier: Apache-2.0

// Package coe renders what a Kubernetes cluster has as entries of COE's YANG models (pod, service,
// k8s-node and k8s-cluster of urn:opendaylight:coe:northbound), as COE's watcher sent them to a
// RESTCONF controller.
package coe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// List is a list of one of COE's models.
type List struct {
	Module, Container, Name string
	// Key is the leaf that identifies an entry.
	Key string
	// leaves are those that entries of this package have, and no others of the model.
	leaves leaves
}

// leaves are the children of a node by name: nil for a leaf, else the children of a list's entries.
type leaves map[string]leaves

// Entry is one of a List: leaves (string or int), leaf-lists ([]string) and lists ([]Entry) by
// name, without the module's name (RFC 7951, section 4).
type Entry map[string]any

// The lists.
var (
	Clusters = &List{
		Module: "k8s-cluster", Container: "k8s-clusters-info", Name: "k8s-clusters", Key: clusterID,
		leaves: leaves{clusterID: nil},
	}
	Nodes = &List{
		Module: "k8s-node", Container: "k8s-nodes-info", Name: "k8s-nodes", Key: uid,
		leaves: leaves{
			uid: nil, clusterID: nil, "host-name": nil, "internal-ip-address": nil, "external-ip-address": nil,
			"pod-cidr": nil,
		},
	}
	Pods = &List{
		Module: "pod", Container: "coe", Name: "pods", Key: uid,
		leaves: leaves{
			uid: nil, clusterID: nil, name: nil, namespace: nil, "host-ip-address": nil,
			"interface": {uid: nil, ipAddress: nil, "network-id": nil, "network-type": nil},
		},
	}
	Services = &List{
		Module: "service", Container: "service-information", Name: "services", Key: uid,
		leaves: leaves{
			uid: nil, clusterID: nil, name: nil, namespace: nil, "cluster-ip-address": nil, "external-ip-address": nil,
			"load-balancer-IP": nil, "ingress-ip-address": nil,
			"service-ports": {name: nil, port: nil, "target-port": nil, "node-port": nil},
		},
	}
	// Endpoints have no cluster-id in the model. Theirs is that of the Service of the same uid.
	Endpoints = &List{
		Module: "service", Container: "endpoints-info", Name: "endpoints", Key: uid,
		leaves: leaves{
			uid: nil, name: nil, namespace: nil,
			"endpoint-addresses": {ipAddress: nil, "host-name": nil, "node-name": nil},
			"endpoint-ports":     {name: nil, port: nil},
		},
	}
)

// Lists are all, in the order in which entries refer to others.
var Lists = []*List{Clusters, Nodes, Pods, Services, Endpoints}

// Names of leaves that several lists have.
const (
	uid       = "uid"
	name      = "name"
	port      = "port"
	namespace = "network-NS"
	clusterID = "cluster-id"
	ipAddress = "ip-address"
)

// Body is a request's body for an entry (RFC 8040, section 4.5).
func (l *List) Body(e Entry) ([]byte, error) {
	return json.Marshal(map[string][]Entry{l.Module + ":" + l.Name: {e}})
}

// Read takes the body of a RESTCONF controller's answer to a GET of the list's container. It
// returns the entries' texts (see Text) and clusters, by key.
func (l *List) Read(body []byte) (map[string]Remote, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("%s:%s: %w", l.Module, l.Container, err)
	}
	container, _ := member(tree, l.Container).(map[string]any)
	entries, _ := member(container, l.Name).([]any)
	all := map[string]Remote{}
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		key, ok := member(entry, l.Key).(string)
		if !ok {
			return nil, fmt.Errorf("%s:%s: an entry of %s has no %s", l.Module, l.Container, l.Name, l.Key)
		}
		cluster, _ := member(entry, clusterID).(string)
		all[key] = Remote{Text: text(l.leaves.prune(entry)), Cluster: cluster}
	}
	return all, nil
}

// Remote is an entry as a RESTCONF controller has it.
type Remote struct{ Text, Cluster string }

// Text is a text that two equal entries have in common. Lists have no order, and what the
// controller has beyond the leaves of this package does not count.
func (l *List) Text(e Entry) (string, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return "", err
	}
	return text(l.leaves.prune(tree)), nil
}

// member is the member of an object with or without its module's name.
func member(object map[string]any, name string) any {
	if v, ok := object[name]; ok {
		return v
	}
	for k, v := range object {
		if _, local, found := strings.Cut(k, ":"); found && local == name {
			return v
		}
	}
	return nil
}

// prune leaves what the leaves name, without names of modules and empty lists, and sorts lists.
func (l leaves) prune(object map[string]any) map[string]any {
	kept := map[string]any{}
	for name, children := range l {
		switch v := member(object, name).(type) {
		case nil:
		case []any:
			var list []any
			for _, x := range v {
				if o, ok := x.(map[string]any); ok {
					x = children.prune(o)
				}
				list = append(list, x)
			}
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(text(a), text(b)) })
			if len(list) > 0 {
				kept[name] = list
			}
		default:
			kept[name] = v
		}
	}
	return kept
}

// text is the JSON text of decoded JSON, with members sorted.
func text(v any) string {
	data, _ := json.Marshal(v) // what was decoded can be encoded
	return string(data)
}
