// SPDX-License-Identifier: Apache-2.0

package neutronfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

func (n *Neutron) checkGroup(o object) *refused {
	if name, _ := o["name"].(string); strings.EqualFold(name, "default") {
		return refuse(http.StatusConflict, "SecurityGroupDefaultAlreadyExists",
			"Default security group already exists.")
	}
	return nil
}

// giveRules gives a new security group the rules that let everything out.
func (n *Neutron) giveRules(group object) {
	for _, family := range []string{"IPv4", "IPv6"} {
		r := clone(collections["security-group-rules"].attributes)
		maps.Copy(r, object{
			"security_group_id": group["id"], "direction": "egress", "ethertype": family,
			"project_id": group["project_id"], "description": nil,
		})
		n.numbers++
		r["id"] = uuid(n.numbers)
		n.all["security-group-rules"] = append(n.all["security-group-rules"], r)
	}
}

// withItsRules is a security group as answers have it.
func (n *Neutron) withItsRules(group object) object {
	rules := []any{}
	for _, r := range n.all["security-group-rules"] {
		if r["security_group_id"] == group["id"] {
			rules = append(rules, r)
		}
	}
	answer := clone(group)
	answer["security_group_rules"] = rules
	return answer
}

// checkRule wants what fits together, and no second rule that says the same.
func (n *Neutron) checkRule(o object) *refused {
	for _, name := range []string{"security_group_id", "remote_group_id"} {
		if (o[name] != nil || name == "security_group_id") && n.find("security-groups", o[name]) == nil {
			return refuse(http.StatusNotFound, "SecurityGroupNotFound", "Security group %v does not exist", o[name])
		}
	}
	if o["remote_group_id"] != nil && o["remote_ip_prefix"] != nil {
		return refuse(http.StatusBadRequest, "SecurityGroupMultipleRemoteEntites",
			"Only remote_ip_prefix or remote_group_id or remote_address_group_id may be provided.")
	}
	if text, ok := o["remote_ip_prefix"].(string); ok {
		b, err := netip.ParsePrefix(text)
		if err != nil || b.Addr().Is4() != (o["ethertype"] == "IPv4") {
			return refuse(http.StatusBadRequest, "SecurityGroupRuleParameterConflict",
				"Conflicting value ethertype %v for CIDR %s", o["ethertype"], text)
		}
		o["remote_ip_prefix"] = asStored(b)
	}
	if err := checkPorts(o); err != nil {
		return err
	}
	i := slices.IndexFunc(n.all["security-group-rules"], func(other object) bool { return sameRule(o, other) })
	if i >= 0 {
		return refuse(http.StatusConflict, "SecurityGroupRuleExists", "Security group rule already exists. Rule id is %v.",
			n.all["security-group-rules"][i]["id"])
	}
	return nil
}

// asStored is a prefix as netaddr writes it, and the C library below that: what is in ::/96 and not
// just after its beginning ends with four numbers.
func asStored(b netip.Prefix) string {
	bytes := b.Addr().As16()
	last := bytes[len(bytes)-4:]
	if !netip.MustParsePrefix("::/96").Contains(b.Addr()) || last[0] == 0 && last[1] == 0 {
		return b.String()
	}
	return fmt.Sprintf("::%d.%d.%d.%d/%d", last[0], last[1], last[2], last[3], b.Bits())
}

// postRules makes rules of one group, all or none.
func (n *Neutron) postRules(c *collection, path string, several []any) (int, any, *refused) {
	made, before := []object{}, len(n.all[path])
	for _, one := range several {
		given, _ := one.(object)
		o, err := n.make(c, path, given)
		said := func(other object) bool { return sameRule(given, other) }
		switch {
		case err != nil && slices.ContainsFunc(made, said):
			err = refuse(http.StatusConflict, "DuplicateSecurityGroupRuleInPost",
				"Duplicate Security Group Rule in POST.")
		case err == nil && o["security_group_id"] != n.all[path][before]["security_group_id"]:
			err = refuse(http.StatusBadRequest, "SecurityGroupNotSingleGroupRules",
				"Only allowed to update rules for one security profile at a time")
		}
		if err != nil {
			n.all[path] = n.all[path][:before]
			return 0, nil, err
		}
		made = append(made, o)
	}
	return http.StatusCreated, object{c.plural: made}, nil
}

// sameRule reports whether two rules say the same: all addresses of a family are no prefix.
func sameRule(a, b object) bool {
	value := func(o object, name string) string {
		if text, _ := o[name].(string); text == "0.0.0.0/0" || text == "::/0" {
			return fmt.Sprint(nil)
		}
		return fmt.Sprint(o[name])
	}
	for name := range collections["security-group-rules"].attributes {
		if value(a, name) != value(b, name) {
			return false
		}
	}
	return true
}

// checkPorts wants ports of protocols that have some, and types before codes of ICMP.
func checkPorts(o object) *refused {
	protocol, _ := o["protocol"].(string)
	first, bounded := number(o["port_range_min"])
	last, ended := number(o["port_range_max"])
	if protocol == "ipv6-icmp" && o["ethertype"] == "IPv4" {
		return refuse(http.StatusBadRequest, "SecurityGroupEthertypeConflictWithProtocol",
			"Invalid ethertype IPv4 for protocol ipv6-icmp.")
	}
	if !bounded && !ended {
		return nil
	}
	switch protocol {
	case "":
		return refuse(http.StatusBadRequest, "SecurityGroupProtocolRequiredWithPorts",
			"Must also specify protocol if port range is given.")
	case "icmp", "ipv6-icmp":
		if !bounded {
			return refuse(http.StatusBadRequest, "SecurityGroupMissingIcmpType", "ICMP code (port-range-max) %d is provided but ICMP "+
				"type (port-range-min) is missing.", last)
		}
		return nil
	case "tcp", "udp", "sctp":
	default:
		return refuse(http.StatusBadRequest, "SecurityGroupInvalidProtocolForPort",
			"Invalid protocol %s for port range", protocol)
	}
	switch {
	case bounded && first == 0 || ended && last == 0:
		return refuse(http.StatusBadRequest, "SecurityGroupInvalidPortValue", "Invalid value for port 0")
	case !bounded || !ended || first > last:
		return refuse(http.StatusBadRequest, "SecurityGroupInvalidPortRange",
			"For TCP/UDP protocols, port_range_min must be <= port_range_max")
	}
	return nil
}

// number is one as JSON has it, or as Go does.
func number(value any) (int, bool) {
	switch v := value.(type) {
	case float64:
		return int(v), true
	case int:
		return v, true
	}
	return 0, false
}
