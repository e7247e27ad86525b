// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/translate"
)

// outsidePrefix precedes an address outside of the cluster that a packet comes from.
const outsidePrefix = "outside:"

// ParseSource reads the end that a packet comes from: what ParseEndpoint reads, or "outside:" and
// an address.
func ParseSource(text, namespace string) (Endpoint, error) {
	address, ok := strings.CutPrefix(text, outsidePrefix)
	if !ok {
		return ParseEndpoint(text, namespace)
	}
	a, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: %q is not an address; a packet from outside is outside:ADDRESS, without a port",
			text, address)
	}
	return Endpoint{Addresses: []netip.Addr{a.Unmap()}, Outside: true}, nil
}

// FindAnswering fills in the node that answers for the end's address, which has to be that of a
// FloatingIP, of a Router's gateway or of an Egress.
func (c *Cluster) FindAnswering(ctx context.Context, e Endpoint) (Endpoint, error) {
	if e.Pod != "" {
		return e, fmt.Errorf("packets from outside reach floating IPs: name the address of one that stands for %s "+
			"in its place; kubectl get floatingips -A shows them", e.Pod)
	}
	var all v1alpha1.FloatingIPList
	var networks v1alpha1.NetworkList
	var blocks v1alpha1.AddressBlockList
	err := errors.Join(c.read(ctx, &all, "floatingips"), c.read(ctx, &networks, "networks"),
		c.read(ctx, &blocks, "addressblocks"))
	if err != nil {
		return e, err
	}
	if b := gatewayWith(e.Addresses[0], blocks.Items); b != nil {
		e.Node, err = leading(b)
		return e, err
	}
	f, err := floatingIPWith(e.Addresses[0], all.Items, networks.Items)
	if err != nil {
		return e, err
	}
	e.Node, err = nodeOf(ctx, c, f)
	return e, err
}

// Answering implements Agents.
func (c *Cluster) Answering(ctx context.Context, f agentapi.TracedFloatingIP) (string, error) {
	if f.Service != "" {
		return nodeAnswering(ctx, c, f.Service, f.Address)
	}
	namespace, name, _ := strings.Cut(f.Name, "/")
	var read v1alpha1.FloatingIP
	err := c.read(ctx, &read, "namespaces", namespace, "floatingips", name)
	return read.Status.Node, err
}

// read gets what is at a path of Coelan's API.
func (c *Cluster) read(ctx context.Context, into any, path ...string) error {
	answer, err := c.client.CoreV1().RESTClient().Get().
		AbsPath("/apis", v1alpha1.GroupVersion.String()).Suffix(path...).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", strings.Join(path, "/"), err)
	}
	return nil
}

// gatewayWith is the block by which a Router's gateway or an Egress has the address; nil if none
// has.
func gatewayWith(a netip.Addr, blocks []v1alpha1.AddressBlock) *v1alpha1.AddressBlock {
	for i, b := range blocks {
		p, err := netip.ParsePrefix(b.Spec.CIDR)
		leads := strings.Contains(b.Spec.Gateway, "/") || b.Spec.Egress != ""
		if leads && err == nil && p.IsSingleIP() && p.Addr() == a {
			return &blocks[i]
		}
	}
	return nil
}

// leading is the node that translates to the address of a block of a gateway or an Egress.
func leading(b *v1alpha1.AddressBlock) (string, error) {
	_, node, of := strings.Cut(b.Spec.Gateway, "/")
	if of && node != v1alpha1.AnyNode {
		return node, nil
	}
	if b.Status.ActiveNode == "" {
		condition := v1alpha1.ConditionReady
		if of {
			condition = v1alpha1.ConditionGatewayReady
		}
		return "", fmt.Errorf("no node has reported that it is active for %s of %s: its condition %s says whether one may be",
			b.Spec.CIDR, translate.ClaimedFor(b), condition)
	}
	return b.Status.ActiveNode, nil
}

// floatingIPWith is the FloatingIP that has an address. The error says what is wrong if there is
// none.
func floatingIPWith(a netip.Addr, all []v1alpha1.FloatingIP, networks []v1alpha1.Network) (
	f v1alpha1.FloatingIP, err error,
) {
	var asking *v1alpha1.FloatingIP
	for i, f := range all {
		switch a.String() {
		case f.Status.Address:
			return f, nil
		case spelled(f.Spec.Address):
			asking = &all[i]
		}
	}
	if asking != nil {
		return f, fmt.Errorf("FloatingIP %s/%s asks for %s and does not have it: %s", asking.Namespace, asking.Name, a,
			readiness(*asking))
	}
	inside := ""
	for _, n := range networks {
		for _, s := range n.Spec.Subnets {
			p, err := netip.ParsePrefix(s.CIDR)
			switch {
			case err != nil || !p.Contains(a):
			case n.Spec.External:
				return f, fmt.Errorf("no FloatingIP, Router's gateway or Egress has the address %s of the external Network %s;"+
					" kubectl get floatingips -A shows the FloatingIPs that there are", a, n.Name)
			default:
				inside = n.Name
			}
		}
	}
	if inside != "" {
		return f, fmt.Errorf("%s is an address of Network %s, which is not external: from outside, packets to floating IPs"+
			" can be traced; kubectl get floatingips -A shows them", a, inside)
	}
	return f, fmt.Errorf("%s is an address of no external Network: from outside, packets to floating IPs can be traced;"+
		" kubectl get floatingips -A shows them", a)
}

// nodeOf is the node that answers for a FloatingIP. The error says what is wrong if none does.
func nodeOf(ctx context.Context, agents Agents, f v1alpha1.FloatingIP) (string, error) {
	switch {
	case f.Spec.Service != "" && !meta.IsStatusConditionTrue(f.Status.Conditions, v1alpha1.ConditionReady):
		return "", fmt.Errorf("no node answers for FloatingIP %s/%s: %s", f.Namespace, f.Name, readiness(f))
	case f.Spec.Service != "":
		a, err := netip.ParseAddr(f.Status.Address)
		if err != nil {
			return "", fmt.Errorf("FloatingIP %s/%s: status.address: %w", f.Namespace, f.Name, err)
		}
		node, err := nodeAnswering(ctx, agents, f.Namespace+"/"+f.Spec.Service, a)
		if node == "" {
			err = errors.Join(fmt.Errorf("no node answers for %s, FloatingIP %s/%s of Service %s: is there such a Service, in "+
				"the mode native, and with externalTrafficPolicy Local an endpoint on a node that is connected to Network %s?",
				a, f.Namespace, f.Name, f.Spec.Service, f.Spec.Network), err)
		}
		return node, err
	case f.Spec.Port == "":
		return "", fmt.Errorf("FloatingIP %s/%s has the address %s and stands for no Port and no Service: set its spec.port "+
			"or spec.service", f.Namespace, f.Name, f.Status.Address)
	case f.Status.Node == "":
		return "", fmt.Errorf("no node answers for FloatingIP %s/%s: %s", f.Namespace, f.Name, readiness(f))
	}
	return f.Status.Node, nil
}

// nodeAnswering is the node that the nodes have chosen to answer for an address of a Service; empty
// if no agent says that its node does.
func nodeAnswering(ctx context.Context, agents Agents, service string, a netip.Addr) (string, error) {
	nodes, err := agents.Nodes(ctx)
	errs := []error{err}
	for _, node := range nodes {
		list, err := Services(ctx, agents, node)
		errs = append(errs, err)
		for _, v := range list {
			if v.Namespace+"/"+v.Name == service && slices.Contains(v.Answers, a) {
				return node, nil
			}
		}
	}
	return "", errors.Join(errs...)
}

// readiness is what the controller says of a FloatingIP.
func readiness(f v1alpha1.FloatingIP) string {
	c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return "no controller has looked at it yet; coelan status says whether one runs"
	}
	return c.Reason + ": " + cmp.Or(c.Message, "no message")
}

// spelled is an address as Coelan writes it; empty if it is none.
func spelled(a v1alpha1.Address) string {
	parsed, err := netip.ParseAddr(a)
	if err != nil {
		return ""
	}
	return parsed.String()
}
