// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/attachment"
)

// networkStatus is an element of AnnotationNetworkStatus.
type networkStatus struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	MTU       int      `json:"mtu,omitempty"`
	Default   bool     `json:"default,omitempty"`
	DNS       dns      `json:"dns"`
	Gateway   []string `json:"gateway,omitempty"`
}

type dns struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// NetworkStatus is the value of AnnotationNetworkStatus for the attachments of a pod, in any order:
// the first interface is first, and is the default one. An interface is named by its
// NetworkAttachmentDefinition, or else by the name in the CNI configuration if it is the first one,
// or else by its Network. gateway has the gateways of default routes only.
func NetworkStatus(list []attachment.Attachment) string {
	out := []networkStatus{}
	for _, a := range sorted(list) {
		s := networkStatus{Name: a.NAD, Interface: a.IfName, MAC: a.MAC.String(), MTU: a.MTU, Default: a.Primary}
		switch {
		case s.Name != "":
		case a.Primary:
			s.Name = a.ConfName
		default:
			s.Name = a.NetworkName
		}
		for _, p := range a.Addresses {
			s.IPs = append(s.IPs, p.Addr().String())
		}
		for _, gw := range a.DefaultRoutes {
			s.Gateway = append(s.Gateway, gw.String())
		}
		if a.DNS != nil {
			s.DNS = dns{a.DNS.Nameservers, a.DNS.Domain, a.DNS.Search, a.DNS.Options}
		}
		out = append(out, s)
	}
	return encode(out)
}

// ovnInterface is an element of AnnotationOVNInterfaces.
type ovnInterface struct {
	Addresses      []string `json:"ip_address"`
	MAC            string   `json:"mac_address"`
	Gateways       []string `json:"gateway_ip"`
	DefaultGateway string   `json:"defaultGateway,omitempty"`
	Interface      string   `json:"interface"`
}

// OVNInterfaces is the value of AnnotationOVNInterfaces for the attachments of a pod, in any order.
// The pod's first interface is last, and its name is *.
func OVNInterfaces(list []attachment.Attachment) string {
	further, first := []ovnInterface{}, []ovnInterface{}
	for _, a := range sorted(list) {
		o := ovnInterface{Addresses: []string{}, Gateways: []string{}, MAC: a.MAC.String()}
		for _, p := range a.Addresses {
			o.Addresses = append(o.Addresses, p.String())
		}
		for _, gw := range gateways(a) {
			o.Gateways = append(o.Gateways, gw.String())
		}
		if a.Primary {
			o.Interface = "*"
			first = append(first, o)
			continue
		}
		o.Interface, o.DefaultGateway = a.IfName, strconv.FormatBool(len(a.DefaultRoutes) > 0)
		further = append(further, o)
	}
	return encode(append(further, first...))
}

// gateways are one of each family: that of the default route, or else that of the first address.
func gateways(a attachment.Attachment) []netip.Addr {
	var list []netip.Addr
	for _, gw := range slices.Concat(a.DefaultRoutes, a.Gateways) {
		if gw.IsValid() && !slices.ContainsFunc(list, func(b netip.Addr) bool { return b.Is4() == gw.Is4() }) {
			list = append(list, gw)
		}
	}
	return list
}

// sorted has the pod's first interface first, and net2 before net10.
func sorted(list []attachment.Attachment) []attachment.Attachment {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b attachment.Attachment) int {
		switch {
		case a.Primary != b.Primary && a.Primary:
			return -1
		case a.Primary != b.Primary:
			return 1
		}
		return cmp.Or(cmp.Compare(len(a.IfName), len(b.IfName)), cmp.Compare(a.IfName, b.IfName))
	})
	return list
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and lists of them can be encoded
	}
	return string(data)
}
