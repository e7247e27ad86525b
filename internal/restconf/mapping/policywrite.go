// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/internal/restconf/datatree"
)

// writePolicy makes a NetworkPolicy be as the entry says.
func writePolicy(w *World, e *policyEntry) error {
	n, err := readPolicyNode(e)
	if err != nil {
		return err
	}
	p, err := editPolicy(w, n)
	if err != nil {
		return err
	}
	spec, err := n.Spec.object()
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(spec, p.Spec) {
		p.Spec = spec
	}
	w.Policies[keyOf(p)] = p
	return nil
}

// editPolicy returns a copy of the entry's policy, or a new one.
func editPolicy(w *World, n policyNode) (*networkingv1.NetworkPolicy, error) {
	if p := find(w.Policies, policyUUID, n.UUID); p != nil {
		switch key := keyOf(p); {
		case !alive(p):
			return nil, datatree.Fail(datatree.InUse, "uuid", fmt.Sprintf("the NetworkPolicy %s is being deleted", key))
		case n.Name != "" && n.Name != p.Name:
			return nil, invalid("name", fmt.Sprintf("is %q: the NetworkPolicy of that uuid is %s", n.Name, key))
		case n.Namespace != "" && n.Namespace != p.Namespace:
			return nil, invalid("network-NS",
				fmt.Sprintf("is %q: the NetworkPolicy of that uuid is %s", n.Namespace, key))
		}
		return p.DeepCopy(), nil
	}
	key := types.NamespacedName{
		Namespace: cmp.Or(n.Namespace, defaultNamespace), Name: cmp.Or(n.Name, "policy-"+n.UUID),
	}
	if err := checkName(key.Namespace, "network-NS", maxName); err != nil {
		return nil, err
	}
	if err := checkName(key.Name, "name", maxObjectName); err != nil {
		return nil, err
	}
	if p := w.Policies[key]; p != nil {
		return nil, datatree.Fail(datatree.DataExists, "name",
			fmt.Sprintf("there is a NetworkPolicy %s already, whose entry has the uuid %s: use that, or another name",
				key, policyUUID(p)))
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	metav1.SetMetaDataLabel(&p.ObjectMeta, LabelPolicy, n.UUID)
	return p, nil
}

// object is the spec with the defaults that the API server would set: what is there already is not
// written again.
func (s policySpec) object() (spec networkingv1.NetworkPolicySpec, err error) {
	spec.PodSelector = s.PodSelector.object()
	for _, r := range inOrder(s.Ingress) {
		at := atPlace("network-policy-spec/ingress", r.place) + "/network-policy-ingress-rule/"
		var rule networkingv1.NetworkPolicyIngressRule
		if rule.Ports, err = policyPorts(r.Rule.Ports, at+"ingress-ports"); err != nil {
			return spec, err
		}
		if rule.From, err = peers(r.Rule.From, at+"from"); err != nil {
			return spec, err
		}
		spec.Ingress = append(spec.Ingress, rule)
	}
	for _, r := range inOrder(s.Egress) {
		at := atPlace("network-policy-spec/egress", r.place) + "/network-policy-egress-rule/"
		var rule networkingv1.NetworkPolicyEgressRule
		if rule.Ports, err = policyPorts(r.Rule.Ports, at+"egress-ports"); err != nil {
			return spec, err
		}
		if rule.To, err = peers(r.Rule.To, at+"to"); err != nil {
			return spec, err
		}
		spec.Egress = append(spec.Egress, rule)
	}
	for _, t := range s.PolicyTypes {
		spec.PolicyTypes = append(spec.PolicyTypes, policyTypes[t])
	}
	if len(s.PolicyTypes) == 0 {
		spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(spec.Egress) > 0 {
			spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	return spec, nil
}

// policyTypes are the values of policy-types by their names.
var policyTypes = map[string]networkingv1.PolicyType{
	"ingress": networkingv1.PolicyTypeIngress, "egress": networkingv1.PolicyTypeEgress,
}

// atPlace is the path of an entry without a name.
func atPlace(list string, p place) string { return fmt.Sprintf("%s[position='%d']", list, p.Position) }

func policyPorts(nodes []portNode, at string) ([]networkingv1.NetworkPolicyPort, error) {
	var list []networkingv1.NetworkPolicyPort
	for _, n := range inOrder(nodes) {
		leaf := atPlace(at, n.place) + "/network-policy-port/"
		p := networkingv1.NetworkPolicyPort{
			Protocol: new(cmp.Or(corev1.Protocol(n.Port.Protocol), corev1.ProtocolTCP)),
			EndPort:  optional(n.Port.EndPort),
		}
		if n.Port.Port != "" {
			p.Port = new(intstr.Parse(n.Port.Port))
		}
		switch {
		case p.Port == nil && p.EndPort != nil, p.Port != nil && p.Port.Type == intstr.String && p.EndPort != nil:
			return nil, invalid(leaf+"end-port", "ends a range whose port is no number")
		case p.Port != nil && p.Port.Type == intstr.Int && (p.Port.IntVal < 1 || p.Port.IntVal > 65535):
			return nil, invalid(leaf+"port", fmt.Sprintf("is %s: ports are 1 to 65535", n.Port.Port))
		case p.EndPort != nil && *p.EndPort < p.Port.IntVal:
			return nil, invalid(leaf+"end-port",
				fmt.Sprintf("is %d: it lies before the port %s", *p.EndPort, n.Port.Port))
		}
		list = append(list, p)
	}
	return list, nil
}

func peers(nodes []peerNode, at string) ([]networkingv1.NetworkPolicyPeer, error) {
	var list []networkingv1.NetworkPolicyPeer
	for _, n := range inOrder(nodes) {
		leaf := atPlace(at, n.place) + "/network-policy-peer"
		var p networkingv1.NetworkPolicyPeer
		if n.Peer.Pods != nil {
			p.PodSelector = new(n.Peer.Pods.object())
		}
		if n.Peer.Namespaces != nil {
			p.NamespaceSelector = new(n.Peer.Namespaces.object())
		}
		switch {
		case n.Peer.Block != nil && (p.PodSelector != nil || p.NamespaceSelector != nil):
			return nil, invalid(leaf, "has ip-block and a selector: it is addresses or pods")
		case n.Peer.Block == nil && p.PodSelector == nil && p.NamespaceSelector == nil:
			return nil, datatree.Fail(datatree.MissingElement, leaf, "is empty: it needs a selector or ip-block")
		case n.Peer.Block != nil:
			if err := checkBlock(n.Peer.Block, leaf+"/ip-block/"); err != nil {
				return nil, err
			}
			p.IPBlock = &networkingv1.IPBlock{CIDR: n.Peer.Block.CIDR, Except: n.Peer.Block.Except}
		}
		list = append(list, p)
	}
	return list, nil
}

// checkBlock refuses what are no prefixes, and exceptions that are not in their prefix.
func checkBlock(b *blockNode, leaf string) error {
	whole, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return invalid(leaf+"cidr", fmt.Sprintf("%q is no prefix", b.CIDR))
	}
	for _, text := range b.Except {
		part, err := netip.ParsePrefix(text)
		if err != nil {
			return invalid(leaf+"except", fmt.Sprintf("%q is no prefix", text))
		}
		if !whole.Contains(part.Addr()) || part.Bits() <= whole.Bits() {
			return invalid(leaf+"except", fmt.Sprintf("%s is no part of %s", text, b.CIDR))
		}
	}
	return nil
}

func (n selectorNode) object() (s metav1.LabelSelector) {
	for _, l := range n.Labels {
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		s.MatchLabels[l.Key] = l.Value
	}
	for _, e := range inOrder(n.Expressions) {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values,
		})
	}
	return s
}

// removePolicy removes the policy of an entry.
func removePolicy(w *World, uuid string) error {
	p := find(w.Policies, policyUUID, strings.ToLower(uuid))
	if p == nil || !alive(p) {
		return datatree.NotFound("uuid")
	}
	delete(w.Policies, keyOf(p))
	return nil
}
