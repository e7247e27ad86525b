// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/openconfig/ygot/ygot"
	networkingv1 "k8s.io/api/networking/v1"

	"coelan.io/coelan/internal/restconf/yangmodel"
)

// LabelPolicy on a NetworkPolicy is the uuid of its entry.
const LabelPolicy = "coelan.io/restconf-policy"

type policyEntry = yangmodel.K8S_K8S_NetworkPolicies_NetworkPolicy

// policies are NetworkPolicies of Kubernetes.
func policies() *List {
	return &List{
		Container: "k8s", Inner: "network-policies", Name: "network-policy",
		Reads:   []Resource{Policies},
		New:     func() ygot.GoStruct { return &policyEntry{} },
		Entries: func(w *World) []ygot.GoStruct { return structs(showPolicies(w)) },
		Write:   writer(writePolicy),
		Remove:  removePolicy,
	}
}

// policyUUID is the uuid of a policy's entry.
func policyUUID(p *networkingv1.NetworkPolicy) string {
	return cmp.Or(p.Labels[LabelPolicy], string(p.UID))
}

// The generated types have each selector, port and peer once for each place that it is in. These
// are an entry with one type for each, by way of JSON.
type (
	policyNode struct {
		UUID      string     `json:"uuid"`
		Name      string     `json:"name,omitempty"`
		Namespace string     `json:"network-NS,omitempty"`
		Spec      policySpec `json:"network-policy-spec"`
	}
	policySpec struct {
		PodSelector selectorNode  `json:"pod-selector"`
		Ingress     []ingressNode `json:"ingress,omitempty"`
		Egress      []egressNode  `json:"egress,omitempty"`
		PolicyTypes []string      `json:"policy-types,omitempty"`
	}
	ingressNode struct {
		place
		Rule struct {
			Ports []portNode `json:"ingress-ports,omitempty"`
			From  []peerNode `json:"from,omitempty"`
		} `json:"network-policy-ingress-rule"`
	}
	egressNode struct {
		place
		Rule struct {
			Ports []portNode `json:"egress-ports,omitempty"`
			To    []peerNode `json:"to,omitempty"`
		} `json:"network-policy-egress-rule"`
	}
	portNode struct {
		place
		Port struct {
			Protocol string `json:"protocol,omitempty"`
			Port     string `json:"port,omitempty"`
			EndPort  int32  `json:"end-port,omitempty"`
		} `json:"network-policy-port"`
	}
	peerNode struct {
		place
		Peer struct {
			Pods       *selectorNode `json:"peer-pod-selector,omitempty"`
			Namespaces *selectorNode `json:"peer-namespace-selector,omitempty"`
			Block      *blockNode    `json:"ip-block,omitempty"`
		} `json:"network-policy-peer"`
	}
	blockNode struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except,omitempty"`
	}
	selectorNode struct {
		Labels      []labelNode      `json:"match-labels,omitempty"`
		Expressions []expressionNode `json:"match-expressions,omitempty"`
	}
	labelNode struct {
		Key   string `json:"key"`
		Value string `json:"value,omitempty"`
	}
	expressionNode struct {
		place
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values,omitempty"`
	}
)

// place is the key of an entry without a name.
type place struct {
	Position int `json:"position"`
}

func (p place) at() int { return p.Position }

// inOrder sorts entries by their places.
func inOrder[T interface{ at() int }](list []T) []T {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(a.at(), b.at()) })
	return list
}

// entry is the node as the generated type.
func (n policyNode) entry() (*policyEntry, error) {
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	e := &policyEntry{}
	return e, yangmodel.Unmarshal(text, e)
}

// readPolicyNode is an entry as a node.
func readPolicyNode(e *policyEntry) (n policyNode, err error) {
	object, err := ygot.ConstructIETFJSON(e, &ygot.RFC7951JSONConfig{})
	if err != nil {
		return n, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal(text, &n)
}

// sortedPolicies are the policies that are not being deleted, in the order of their names.
func sortedPolicies(w *World) []*networkingv1.NetworkPolicy {
	var list []*networkingv1.NetworkPolicy
	for _, p := range w.Policies {
		if alive(p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *networkingv1.NetworkPolicy) int { return compareKeys(keyOf(a), keyOf(b)) })
	return list
}

// showPolicies are the entries of all policies. One that does not fit the model has no key, so that
// it is left out with a warning.
func showPolicies(w *World) []*policyEntry {
	var list []*policyEntry
	for _, p := range sortedPolicies(w) {
		e, err := showPolicy(p).entry()
		if err != nil {
			e = &policyEntry{}
		}
		list = append(list, e)
	}
	return list
}
