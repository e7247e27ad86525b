// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/translate"
)

// Bounds that the definition of ClusterNetworkPolicy has as well.
const (
	maxClusterRules    = 25 // of a direction
	maxClusterPriority = 1000
)

// ClusterNetworkPolicyRef names a ClusterNetworkPolicy.
func ClusterNetworkPolicyRef(name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: name}
}

// ClusterNetworkPolicy translates one. It fails closed, as the API wants it of peers that are not
// known: an Accept rule that cannot be read in full fits nothing, and a Deny or a Pass rule denies
// all that it could be about. If it is the subject, the tier or the priority that cannot be read,
// that holds for all rules, for all pods that the policy could be for.
func ClusterNetworkPolicy(o *policyapi.ClusterNetworkPolicy) (policy.Policy, []translate.Problem) {
	t := &clusterReader{policyReader{object: "clusternetworkpolicy " + o.Name, room: maxBlocks}, o}
	p := policy.Policy{Ref: ClusterNetworkPolicyRef(o.Name), Tier: intent.AdminTier}
	closed := ""
	switch o.Spec.Tier {
	case policyapi.AdminTier:
	case policyapi.BaselineTier:
		p.Tier = intent.BaselineTier
	default:
		t.close(&closed, translate.Malformed, "spec.tier", string(o.Spec.Tier),
			"is not Admin or Baseline, so the policy denies in the tier Admin, and accepts nothing; correct it")
	}
	if o.Spec.Priority >= 0 && o.Spec.Priority <= maxClusterPriority {
		p.Priority = uint16(o.Spec.Priority) //nolint:gosec // 0 to 1000
	} else {
		t.close(&closed, translate.Malformed, "spec.priority", fmt.Sprint(o.Spec.Priority),
			"is not 0 to 1000, so the policy denies with priority 0, and accepts nothing; correct it")
	}
	p.Subjects = []policy.Selector{t.clusterSubject(&closed)}
	for _, field := range o.Unknown {
		if _, _, ofRule := ruleOf(field); !ofRule {
			t.close(&closed, translate.Unsupported, field, "",
				"is not known, so the policy accepts nothing; leave it out, or use a Coelan that knows it")
		}
	}
	p.Rules = append(t.clusterRules(intent.Ingress, o.Spec.Ingress, closed),
		t.clusterRules(intent.Egress, o.Spec.Egress, closed)...)
	return p, t.problems
}

type clusterReader struct {
	policyReader
	o *policyapi.ClusterNetworkPolicy
}

// close reports a problem, which is why something is closed unless there is a reason already.
func (t *clusterReader) close(closed *string, reason translate.Reason, field, value, text string) {
	t.report(reason, field, value, text)
	*closed = cmp.Or(*closed, t.problems[len(t.problems)-1].Error())
}

// ruleOf takes the path of a field apart: spec.ingress[0] and the rest.
func ruleOf(field string) (rule, rest string, ok bool) {
	if !strings.HasPrefix(field, "spec.ingress[") && !strings.HasPrefix(field, "spec.egress[") {
		return "", "", false
	}
	rule, rest, ok = strings.Cut(field, "]")
	return rule + "]", strings.TrimPrefix(rest, "."), ok
}

func (t *clusterReader) clusterSubject(closed *string) policy.Selector {
	s := policy.Selector{Namespaces: labels.Everything(), Pods: labels.Everything()}
	widest := func(field string, selector *metav1.LabelSelector) labels.Selector {
		read, why := t.subject(field, selector)
		*closed = cmp.Or(*closed, why)
		return read
	}
	switch subject := t.o.Spec.Subject; {
	case subject.Namespaces != nil && subject.Pods == nil:
		s.Namespaces = widest("spec.subject.namespaces", subject.Namespaces)
	case subject.Pods != nil && subject.Namespaces == nil:
		s.Namespaces = widest("spec.subject.pods.namespaceSelector", &subject.Pods.NamespaceSelector)
		s.Pods = widest("spec.subject.pods.podSelector", &subject.Pods.PodSelector)
	default:
		t.close(closed, translate.Malformed, "spec.subject", "",
			"is not namespaces or pods, so the policy denies for all pods, and accepts nothing; name one of them")
	}
	return s
}

// clusterRules translates the rules of a direction. More than there may be cannot be put into an
// order with those of other policies: if one of them denies or passes, the last that can does so
// for all of them.
func (t *clusterReader) clusterRules(d intent.Direction, list []policyapi.Rule, closed string) []policy.Rule {
	field := "spec.ingress"
	if d == intent.Egress {
		field = "spec.egress"
	}
	if slices.Contains(t.o.Unknown, field) || slices.Contains(t.o.Unknown, "spec") {
		// The rules are not known.
		return []policy.Rule{{Direction: d, Number: 1, Action: intent.Deny, AnyPeer: true, AnyPort: true,
			Closed: closed}}
	}
	var rules []policy.Rule
	for i, r := range list[:min(len(list), maxClusterRules)] {
		rules = append(rules, t.clusterRule(fmt.Sprintf("%s[%d]", field, i), d, i+1, r, closed))
	}
	if len(list) <= maxClusterRules {
		return rules
	}
	why := ""
	t.close(&why, translate.TooMany, field, "",
		fmt.Sprintf("has %d rules, of which the first %d have effect, and what the others deny or pass is denied with all else; make two policies of it", len(list), maxClusterRules))
	for _, r := range list[maxClusterRules:] {
		if r.Action != policyapi.Accept {
			rules[maxClusterRules-1] = policy.Rule{Direction: d, Number: maxClusterRules, Action: intent.Deny,
				AnyPeer: true, AnyPort: true, Closed: why}
		}
	}
	return rules
}

// clusterRule translates one; closed says why all rules of the policy are.
func (t *clusterReader) clusterRule(field string, d intent.Direction, number int, r policyapi.Rule,
	closed string,
) policy.Rule {
	rule := policy.Rule{Direction: d, Number: number, Action: intent.Deny}
	action := r.Action
	switch action {
	case policyapi.Accept:
		rule.Action = intent.Allow
	case policyapi.Pass:
		rule.Action = intent.Pass
	case policyapi.Deny:
	default:
		t.close(&closed, translate.Malformed, field+".action", string(action),
			"is not Accept, Deny or Pass, so the rule denies; correct it")
	}
	peersClosed, portsClosed := "", ""
	for _, unknown := range t.o.Unknown {
		at, rest, ok := ruleOf(unknown)
		if !ok || at != field {
			continue
		}
		const text = "is not known" + failsClosed + "; leave it out, or use a Coelan that knows it"
		switch {
		case strings.HasPrefix(rest, "from[") || strings.HasPrefix(rest, "to["):
			t.close(&peersClosed, translate.Unsupported, unknown, "", text)
		case strings.HasPrefix(rest, "protocols["):
			t.close(&portsClosed, translate.Unsupported, unknown, "", text)
		default:
			t.close(&closed, translate.Unsupported, unknown, "", text)
		}
	}
	peers, end := r.From, field+".from"
	if d == intent.Egress {
		peers, end = r.To, field+".to"
	}
	if len(peers) == 0 {
		t.close(&peersClosed, translate.Missing, end, "", "has no peer"+failsClosed+"; name one")
	}
	nameless := false // a peer that has no named ports
	for i, p := range peers {
		t.clusterPeer(fmt.Sprintf("%s[%d]", end, i), d, p, &rule, &peersClosed)
		nameless = nameless || len(p.Networks) > 0 || p.Nodes != nil
	}
	rule.Blocks = ipam.Disjoint(rule.Blocks)
	for i, p := range r.Protocols {
		at := fmt.Sprintf("%s.protocols[%d]", field, i)
		if p.DestinationNamedPort != "" && nameless {
			t.close(&portsClosed, translate.Malformed, at+".destinationNamedPort", p.DestinationNamedPort,
				"is the name of a port, which networks and nodes do not have"+failsClosed+"; make two rules of it")
		}
		if port, ok := t.clusterPort(at, p, &portsClosed); ok {
			rule.Ports = append(rule.Ports, port)
		}
	}
	rule.Ports, rule.AnyPort = sortPorts(rule.Ports), len(r.Protocols) == 0
	rule.Closed = cmp.Or(peersClosed, portsClosed, closed)
	if rule.Closed == "" || rule.Action == intent.Allow {
		return rule
	}
	rule.Action = intent.Deny
	if peersClosed != "" {
		rule.AnyPeer, rule.Peers, rule.Blocks = true, nil, nil
	}
	if peersClosed != "" || portsClosed != "" {
		rule.AnyPort, rule.Ports = true, nil
	}
	return rule
}

// failsClosed ends what is said of a rule that cannot be read in full.
const failsClosed = "; the rule fits nothing if it accepts, and else denies all"

func (t *clusterReader) clusterPeer(field string, d intent.Direction, p policyapi.Peer, rule *policy.Rule,
	closed *string,
) {
	set := 0
	for _, is := range []bool{p.Namespaces != nil, p.Pods != nil, p.Nodes != nil, len(p.Networks) > 0,
		len(p.DomainNames) > 0} {
		if is {
			set++
		}
	}
	switch {
	case set == 0 && t.knowsWhy(field):
		return
	case set != 1:
		t.close(closed, translate.Malformed, field, "",
			"is not exactly one of the peers that are known"+failsClosed+"; name one")
		return
	case d == intent.Ingress && p.Namespaces == nil && p.Pods == nil:
		t.close(closed, translate.Malformed, field, "",
			"is not a peer of ingress"+failsClosed+"; name namespaces or pods")
		return
	}
	s := policy.Selector{Namespaces: labels.Everything(), Pods: labels.Everything()}
	read := func(field string, selector *metav1.LabelSelector) labels.Selector {
		read, err := readSelector(selector)
		if err != nil {
			t.close(closed, translate.Malformed, field, "", err.Error()+failsClosed+"; correct it")
			return labels.Nothing()
		}
		return read
	}
	switch {
	case p.Namespaces != nil:
		s.Namespaces = read(field+".namespaces", p.Namespaces)
		rule.Peers = append(rule.Peers, s)
	case p.Pods != nil:
		s.Namespaces = read(field+".pods.namespaceSelector", &p.Pods.NamespaceSelector)
		s.Pods = read(field+".pods.podSelector", &p.Pods.PodSelector)
		rule.Peers = append(rule.Peers, s)
	case p.Nodes != nil:
		rule.Peers = append(rule.Peers, policy.Selector{Nodes: read(field+".nodes", p.Nodes)})
	case len(p.DomainNames) > 0:
		t.close(closed, translate.Unsupported, field+".domainNames", strings.Join(p.DomainNames, ","),
			"are names, which Coelan does not look at"+failsClosed+"; use networks")
	}
	for i, text := range p.Networks {
		prefix, ok := parseBlock(text)
		if !ok {
			t.close(closed, translate.Malformed, fmt.Sprintf("%s.networks[%d]", field, i), text,
				"is not a CIDR"+failsClosed+"; write it as 10.0.0.0/8 or fd00::/8")
			continue
		}
		rule.Blocks = append(rule.Blocks, prefix)
	}
}

// knowsWhy says whether there is a field in another that is not known, which has been told.
func (t *clusterReader) knowsWhy(field string) bool {
	return slices.ContainsFunc(t.o.Unknown, func(unknown string) bool { return strings.HasPrefix(unknown, field+".") })
}

func (t *clusterReader) clusterPort(field string, p policyapi.Protocol, closed *string) (policy.Port, bool) {
	var of *policyapi.ProtocolPorts
	var protocol intent.Protocol
	set := 0
	for _, c := range []struct {
		protocol intent.Protocol
		ports    *policyapi.ProtocolPorts
	}{{intent.TCP, p.TCP}, {intent.UDP, p.UDP}, {intent.SCTP, p.SCTP}} {
		if c.ports != nil {
			of, protocol = c.ports, c.protocol
			set++
		}
	}
	if p.DestinationNamedPort != "" {
		set++
	}
	switch {
	case set == 0 && t.knowsWhy(field):
		return policy.Port{}, false
	case set != 1 || of != nil && of.DestinationPort == nil:
		t.close(closed, translate.Malformed, field, "",
			"is not exactly one of the protocols that are known, with a port"+failsClosed+"; name one")
		return policy.Port{}, false
	case of == nil:
		if errs := validation.IsValidPortName(p.DestinationNamedPort); len(errs) > 0 {
			t.close(closed, translate.Malformed, field+".destinationNamedPort", p.DestinationNamedPort,
				"is not the name of a port"+failsClosed+"; correct it")
			return policy.Port{}, false
		}
		return policy.Port{Name: p.DestinationNamedPort}, true
	}
	field += "." + strings.ToLower(protocol.String()) + ".destinationPort"
	port := of.DestinationPort
	first, last := port.Number, port.Number
	if port.Range != nil {
		first, last = port.Range.Start, port.Range.End
	}
	if port.Range != nil && port.Number != 0 || !translate.IsPort(first) || !translate.IsPort(last) || last < first {
		t.close(closed, translate.Malformed, field, fmt.Sprintf("%d-%d", first, last),
			"is not a port, or a range from its first to its last one"+failsClosed+"; correct it")
		return policy.Port{}, false
	}
	return policy.Port{PortRange: intent.PortRange{Protocol: uint8(protocol), First: uint16(first), Last: uint16(last)}}, true //nolint:gosec // 1 to 65535
}
