// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// The number of a group is made of the Service's Slot, its place among those that
// share it, and the group's index in the Service.
const (
	placeBits = 4
	indexBits = 10
	maxGroups = 1 << indexBits
)

// serviceNumber is the number of the Service's first group. It depends on the
// Service's name, and on those that share its Slot.
func (r *rules) serviceNumber(v intent.NodeService) (uint32, bool) {
	slot, mates := serviceSlot(v), make([]slotMate, 0, 4)
	for o := range r.state.servicesBySlot.By(slotText(slot)) {
		mates = append(mates, slotMate{o.Namespace, serviceKey(o)})
	}
	place := placeAmong(mates, slotMate{v.Namespace, serviceKey(v)})
	number := (slot<<placeBits | place) << indexBits
	if place >= 1<<placeBits || number+maxGroups-1 > openflow.GroupMax {
		r.problem("there are no numbers left for its groups: rename the Service")
		return 0, false
	}
	return number, true
}

// groupNumbers hands out indexes of groups: each list of endpoints has the one that
// follows from its port's position; if it takes more, these are from the end.
type groupNumbers struct {
	base  uint32
	first int // indexes below are lists'
	last  int // indexes from here on have been handed out
}

// ports reserves the indexes of n ports and says how many ports fit.
func (g *groupNumbers) ports(n int) int {
	n = min(n, g.last/2)
	g.first = 2 * n
	return n
}

// take returns the number of a list and of its n groups; false if there are not so
// many.
func (g *groupNumbers) take(index, n int) (number uint32, groups []uint32, ok bool) {
	number = g.base + uint32(index)
	if groups = []uint32{number}; g.last-(n-1) < g.first {
		return number, nil, false
	}
	for range n - 1 {
		g.last--
		groups = append(groups, g.base+uint32(g.last))
	}
	return number, groups, true
}

// choice is a list of endpoints that clients get one of.
type choice struct {
	number uint32 // among all lists; in reg8
	parts  []part // none if there is no endpoint
	only   *only
}

// only is the one endpoint of a list, for which the group is not asked: that would take a
// recirculation. It is there for packets that are on their way to it when the last but one
// endpoint goes.
type only struct {
	endpoint intent.Endpoint
	id       uint32
}

// part is the group that chooses for some packets.
type part struct {
	group uint32
	when  []openflow.FieldValue // which packets; none: all
}

func (c *choice) empty() bool { return len(c.parts) == 0 }

// The most endpoints of one group: dp_hash has 256 slots, of which each shall have two
// at least, and a message holds about 1,360 buckets that set a register and resubmit.
const (
	maxSlots        = 256
	maxByConnection = maxSlots / 2
	maxByClient     = 1300
)

// choice emits the groups that choose among endpoints, and what makes an endpoint the
// destination.
func (r *rules) choice(numbers *groupNumbers, index int, v intent.NodeService, p intent.NodeServicePort,
	endpoints []intent.Endpoint,
) *choice {
	list := r.usable(p, endpoints)
	byClient, most := v.AffinitySeconds > 0, maxByConnection
	if byClient {
		most = maxByClient
	}
	ids := endpointIDs(list)
	n := groupsFor(ids, most)
	number, groups, ok := numbers.take(index, n)
	c := &choice{number: number}
	switch {
	case !ok:
		r.problem("port %s: %d endpoints need %d groups, more than the Service has left", portName(p), len(list), n)
		return c
	case len(list) == 0:
		return c
	case len(list) == 1 && !byClient:
		c.only = &only{list[0], ids[0]}
	}
	for i, id := range groups {
		g := openflow.Group{ID: id, Type: openflow.GroupSelect, SelectionMethod: "dp_hash"}
		if byClient {
			// With the port, or a client that was forgotten would get the same one forever.
			port := openflow.L4Src(uint8(p.Protocol), 0).Field()
			g.SelectionMethod, g.SelectionFields = "hash", openflow.HashOn(sourceField(p.IPv6), port)
		}
		g.Buckets = make([]openflow.Bucket, 0, len(list)/n+1)
		for j, e := range list {
			if int(ids[j])%n == i {
				g.Buckets = append(g.Buckets, bucket(p, e, ids[j], byClient))
			}
		}

		if !byClient {
			g.Buckets = evenly(g.Buckets)
		}
		if err := validate(&g); err != nil {
			r.problem("port %s: %v", portName(p), err)
			c.parts = nil
			return c
		}
		r.groups = append(r.groups, g)
		one := part{group: id}
		if n > 1 {
			one.when = share(p, byClient, i, n)
		}
		c.parts = append(c.parts, one)
	}
	r.as(serviceCommitFeature, func() {
		for j, e := range list {
			r.commitTo(c.number, p, e, ids[j])
		}
	})
	if byClient {
		r.as(affinityFeature, func() { r.pinned(c, v, p, list, ids) })
	}
	return c
}

// evenly has Open vSwitch deal out at least four slots of dp_hash to a bucket, if there
// are so many. It takes as many slots as the sum of weights has of the least of them, up
// to a power of two, which for ten buckets of the same weight is 16: six would have two.
// So the first bucket has a small part of its weight in one of its own, with the number
// 0 that no endpoint has.
func evenly(buckets []openflow.Bucket) []openflow.Bucket {
	n := len(buckets)
	if n <= 4 || n&(n-1) == 0 {
		return buckets
	}
	slots := 16
	for slots < 4*n && slots < maxSlots {
		slots *= 2
	}
	weight := uint16(slots / n)
	for i := range buckets {
		buckets[i].Weight = weight
	}
	part := buckets[0]
	buckets[0].Weight, part.ID, part.Weight = weight-1, 0, 1
	return append(buckets, part)
}

// usable are the endpoints that a packet can be sent to.
func (r *rules) usable(p intent.NodeServicePort, endpoints []intent.Endpoint) []intent.Endpoint {
	for i, e := range endpoints {
		if e.Address.Is6() == p.IPv6 && e.Port != 0 {
			continue
		}
		list := append([]intent.Endpoint(nil), endpoints[:i]...)
		for _, e := range endpoints[i:] {
			if e.Address.Is6() == p.IPv6 && e.Port != 0 {
				list = append(list, e)
				continue
			}
			r.problem("port %s: %s is no endpoint of its family", portName(p), netip.AddrPortFrom(e.Address, e.Port))
		}
		return list
	}
	return endpoints
}

// portName is what people call a Service port.
func portName(p intent.NodeServicePort) string {
	if p.Name != "" {
		return p.Name
	}
	return netip.AddrPortFrom(p.ClusterIP, p.Port).String() + "/" + p.Protocol.String()
}

// groupsFor is how many groups share the endpoints with these numbers: 1, or a power
// of two of which none has more than most.
func groupsFor(ids []uint32, most int) int {
	if len(ids) <= most {
		return 1
	}
	for n := 2; ; n *= 2 {
		sizes, fits := make([]int, n), true
		for _, id := range ids {
			i := int(id) % n
			sizes[i]++
			fits = fits && sizes[i] <= most
		}
		for _, size := range sizes {
			fits = fits && (size > 0 || n > len(ids)/2)
		}
		if fits || n >= maxGroups {
			return n
		}
	}
}

// share matches the packets that the group i of n chooses for: by the lower bits of
// the client's port, or of its address.
func share(p intent.NodeServicePort, byClient bool, i, n int) []openflow.FieldValue {
	if byClient {
		return []openflow.FieldValue{sourceField(p.IPv6).Masked(uint64(i), uint64(n-1))}
	}
	return []openflow.FieldValue{openflow.L4SrcMask(uint8(p.Protocol), uint16(i), uint16(n-1))}
}

func sourceField(v6 bool) openflow.Field {
	if v6 {
		return openflow.FieldIPv6Src
	}
	return openflow.FieldIPv4Src
}

// ipType matches packets of the family of a Service port.
func ipType(p intent.NodeServicePort) openflow.FieldValue {
	if p.IPv6 {
		return openflow.EthType(openflow.EthTypeIPv6)
	}
	return openflow.EthType(openflow.EthTypeIPv4)
}

// bucket makes an endpoint the destination, or only says which it is.
func bucket(p intent.NodeServicePort, e intent.Endpoint, id uint32, byClient bool) openflow.Bucket {
	b := openflow.Bucket{ID: id, Weight: 1}
	if byClient {
		b.Actions = []openflow.Action{openflow.Pack(openflow.SetField(regEndpoint.Value(uint64(id))),
			openflow.Resubmit(affinityLearn.ID))}
		return b
	}
	b.Actions = []openflow.Action{openflow.Pack(
		openflow.SetField(openflow.IPDst(e.Address)),
		openflow.SetField(openflow.L4Dst(uint8(p.Protocol), e.Port)),
		openflow.SetField(regEndpoint.Value(uint64(id))),
		openflow.Resubmit(serviceRoute.ID),
	)}
	return b
}

// endpointIDs numbers endpoints by what they are, from 1 on, so that a change of one
// leaves the others' numbers, and the choice of a hash, alone. Where numbers collide,
// the endpoint that sorts later has the next free one.
func endpointIDs(list []intent.Endpoint) []uint32 {
	ids := make([]uint32, len(list))
	var taken map[uint32]bool
	if len(list) > 32 {
		taken = make(map[uint32]bool, len(list))
	}
	for i, e := range list {
		h := uint32(2166136261)
		b := e.Address.As16()
		for _, c := range b {
			h = (h ^ uint32(c)) * 16777619
		}
		h = ((h^uint32(e.Port>>8))*16777619 ^ uint32(e.Port&0xff)) * 16777619
		id := (h^h>>15)%openflow.BucketMax + 1
		for isTaken(taken, ids[:i], id) {
			id = id%openflow.BucketMax + 1
		}
		ids[i] = id
		if taken != nil {
			taken[id] = true
		}
	}
	return ids
}

func isTaken(taken map[uint32]bool, list []uint32, id uint32) bool {
	if taken != nil {
		return taken[id]
	}
	for _, o := range list {
		if o == id {
			return true
		}
	}
	return false
}

// validate says why a switch would not take a group. Its buckets are all alike, so that
// one of few is no longer than a switch can take.
func validate(g *openflow.Group) error {
	if len(g.Buckets) <= 64 {
		return nil
	}
	return g.Validate()
}
