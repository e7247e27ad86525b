// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What follows are strings to Go and more than that to the API server, which refuses what does not
// have their form. Canonical forms (RFC 5952 for IPv6) let texts be compared where they are keys.

// Address is an IPv4 or IPv6 address.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression=`'must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "' + self + '"'`
type Address = string

// GatewayAddress is an Address that what leaves the cluster can come from.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression=`'must be an IPv4 or IPv6 address in canonical form, such as 10.10.0.5 or fd00:10::5, not "' + self + '"'`
// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).isGlobalUnicast()",message="must be a unicast address: not unspecified, loopback, link-local or multicast"
type GatewayAddress = string

// CIDR is an IPv4 or IPv6 prefix without bits set after its length.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression=`'must be an IPv4 or IPv6 prefix, such as 10.10.0.0/16 or fd00:10::/64, not "' + self + '"'`
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || string(cidr(self).masked()) == self",messageExpression=`'must be a prefix in canonical form, with no bits set after its length, not "' + self + '"'`
type CIDR = string

// Exclusion is an address, a prefix, or a range of addresses such as 10.10.0.5-10.10.0.9.
//
// +kubebuilder:validation:MaxLength=79
// +kubebuilder:validation:XValidation:rule="self.contains('-') ? isIP(self.substring(0, self.indexOf('-'))) && isIP(self.substring(self.indexOf('-') + 1)) : isIP(self) || isCIDR(self)",messageExpression=`'must be an address, a prefix, or a range such as 10.10.0.5-10.10.0.9, not "' + self + '"'`
type Exclusion = string

// MAC is an Ethernet address of one interface.
//
// +kubebuilder:validation:MaxLength=17
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$')",messageExpression=`'must be a MAC address such as 02:00:00:00:00:05, not "' + self + '"'`
// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9A-Fa-f][13579BDFbdf]:') && self != '00:00:00:00:00:00'",messageExpression=`'must be the MAC address of one interface: its first byte is even, and not all are zero, not "' + self + '"'`
type MAC = string

// RouteTarget is a route target or distinguisher (RFC 4364, 4.2): AS:number or IPv4:number, six
// bytes in all.
//
// +kubebuilder:validation:MaxLength=21
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,9})$') ? int(self.split(':')[0]) <= 65535 && int(self.split(':')[1]) <= 4294967295 || int(self.split(':')[0]) <= 4294967295 && int(self.split(':')[1]) <= 65535 : self.matches('^[0-9.]+:(0|[1-9][0-9]{0,4})$') && isIP(self.split(':')[0]) && int(self.split(':')[1]) <= 65535",messageExpression=`'must be AS:number or IPv4:number (RFC 4364), such as 64512:10 or 192.0.2.1:10: six bytes, so that an AS above 65535 and an address leave numbers up to 65535, not "' + self + '"'`
type RouteTarget = string

// Name is that of a Network or Router, short enough for a label's value.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
type Name = string

// PoolAddresses are a prefix, or a range of addresses such as 192.0.2.10-192.0.2.20,
// that Services may have.
//
// +kubebuilder:validation:MaxLength=79
// +kubebuilder:validation:XValidation:rule="self.contains('-') ? size(self.split('-')) == 2 && self.split('-').all(a, isIP(a) && ip.isCanonical(a)) : isCIDR(self) && string(cidr(self).masked()) == self",messageExpression=`'must be a prefix with no bits set after its length, such as 192.0.2.32/28, or a range such as 192.0.2.10-192.0.2.20, in canonical form, not "' + self + '"'`
// +kubebuilder:validation:XValidation:rule="self.contains('-') ? size(self.split('-')) != 2 || self.split('-').all(a, !isIP(a) || ip(a).isGlobalUnicast() && (ip(a).family() == 6 || int(a.split('.')[0]) >= 1 && int(a.split('.')[0]) < 224)) : !isCIDR(self) || cidr(self).ip().isGlobalUnicast() && (cidr(self).ip().family() == 6 || int(self.split('.')[0]) >= 1 && int(self.split('.')[0]) < 224)",message="must be unicast addresses: not unspecified, loopback, link-local, multicast or reserved"
// +kubebuilder:validation:XValidation:rule="self.contains('-') ? size(self.split('-')) != 2 || !self.split('-').all(a, isIP(a)) || ip(self.split('-')[0]).family() == ip(self.split('-')[1]).family() : true",message="must be a range of one family"
// +kubebuilder:validation:XValidation:rule="!self.contains('-') || size(self.split('-')) != 2 || !self.split('-').all(a, isIP(a) && ip(a).family() == 4) || int(self.split('-')[0].split('.')[0]) * 16777216 + int(self.split('-')[0].split('.')[1]) * 65536 + int(self.split('-')[0].split('.')[2]) * 256 + int(self.split('-')[0].split('.')[3]) <= int(self.split('-')[1].split('.')[0]) * 16777216 + int(self.split('-')[1].split('.')[1]) * 65536 + int(self.split('-')[1].split('.')[2]) * 256 + int(self.split('-')[1].split('.')[3])",message="must not end before it starts"
// +kubebuilder:validation:XValidation:rule="self.contains('-') ? size(self.split('-')) != 2 || !self.split('-').all(a, isIP(a)) || ip(self.split('-')[0]).family() != ip(self.split('-')[1]).family() || cidr(self.split('-')[0] + (ip(self.split('-')[0]).family() == 4 ? '/16' : '/64')).containsIP(self.split('-')[1]) : !isCIDR(self) || cidr(self).prefixLength() >= (cidr(self).ip().family() == 4 ? 16 : 64)",message="is too large: at most a /16, or a /64 for IPv6, and a range within one of these"
type PoolAddresses = string

// GroupName is that of a SecurityGroup.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",messageExpression=`'must be the name of a SecurityGroup, not "' + self + '"'`
type GroupName = string

// GroupReference is the name of a SecurityGroup, or namespace/name.
//
// +kubebuilder:validation:MaxLength=127
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",messageExpression=`'must be the name of a SecurityGroup, or namespace/name, not "' + self + '"'`
type GroupReference = string

// IPProtocol is a protocol's name or its number (IANA, Protocol Numbers); any and 0 stand for all.
//
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:XValidation:rule="self in ['any', 'tcp', 'udp', 'sctp', 'icmp', 'icmpv6', 'ipv6-icmp', 'ah', 'dccp', 'egp', 'esp', 'gre', 'igmp', 'ipip', 'ospf', 'pgm', 'rsvp', 'udplite', 'vrrp'] || self.matches('^(0|[1-9][0-9]{0,2})$') && int(self) <= 255",messageExpression=`'must be a protocol such as tcp, udp, sctp, icmp or icmpv6, or a number from 0 to 255, not "' + self + '"'`
type IPProtocol = string
