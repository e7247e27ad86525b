// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"coelan.io/coelan/internal/intent"
)

// serviceDigest makes a number of an intent.Service that stands for all of it, so that a set need
// not keep what it has reported. The seed is the process's own, so that an attacker cannot find two
// Services with the same number.
type serviceDigest struct{ hash *maphash.Hash }

func newServiceDigest() serviceDigest { return serviceDigest{&maphash.Hash{}} }

// sum needs every field, in a form from which it could be read back.
func (d serviceDigest) sum(v *intent.Service) uint64 {
	d.hash.Reset()
	d.strings(v.Namespace, v.Name, v.UID, v.Router)
	d.numbers(v.AffinitySeconds, bit(v.InternalLocal), bit(v.ExternalLocal), int(v.HealthCheckNodePort), bit(v.Octavia))
	d.numbers(len(v.SourceRanges))
	for _, p := range v.SourceRanges {
		d.addresses(p.Addr())
		d.numbers(p.Bits())
	}
	d.numbers(len(v.Ports))
	for i := range v.Ports {
		p := &v.Ports[i]
		d.strings(p.Name)
		d.numbers(int(p.Protocol), bit(p.IPv6), int(p.Port), int(p.NodePort))
		d.addresses(p.ClusterIP)
		d.numbers(len(p.ExternalIPs), len(p.LoadBalancerIPs))
		d.addresses(p.ExternalIPs...)
		d.addresses(p.LoadBalancerIPs...)
		d.endpoints(p.Endpoints)
	}
	return d.hash.Sum64()
}

func (d serviceDigest) strings(list ...string) {
	for _, s := range list {
		d.numbers(len(s))
		d.hash.WriteString(s)
	}
}

func (d serviceDigest) numbers(list ...int) {
	for _, n := range list {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		d.hash.Write(b[:])
	}
}

func (d serviceDigest) addresses(list ...netip.Addr) {
	for _, ip := range list {
		b := ip.As16()
		d.numbers(ip.BitLen())
		d.hash.Write(b[:])
	}
}

func (d serviceDigest) endpoints(list []intent.ServiceEndpoint) {
	d.numbers(len(list))
	for i, e := range list {
		d.addresses(e.Address)
		same := i > 0 && e.Topology == list[i-1].Topology
		d.numbers(int(e.Port), bit(e.Terminating), bit(same))
		if !same {
			node, zones, nodes := e.Topology.Parts()
			d.strings(node, zones, nodes)
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
