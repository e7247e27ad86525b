// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// serviceCommitFeature commits connections. The first packet of a Service's has the
// endpoint as destination up to here: it gets back the address that the client asked,
// and conntrack the translation, in the same pass.
var serviceCommitFeature = &feature{
	number: 17,
	name:   "service-commit",
	tables: []Table{serviceCommit, serviceEndpoint},
	needed: (*rules).native,
	local: func(r *rules) {
		for _, proto := range portProtocols {
			port := openflow.L4Dst(proto, 0).Field().All()
			for _, f := range []struct {
				address, saved openflow.Subfield
				ethType        uint16
			}{
				{openflow.FieldIPv4Dst.All(), regAddress4.All(), openflow.EthTypeIPv4},
				{openflow.FieldIPv6Dst.All(), regAddress6.All(), openflow.EthTypeIPv6},
			} {
				r.on(serviceCommit, 200, chosen, openflow.EthType(f.ethType), openflow.IPProto(proto)).
					do(openflow.Move(f.saved, f.address), openflow.Move(regPort, port)).
					goTo(serviceEndpoint)
			}
		}
		r.on(serviceCommit, 200, chosen, openflow.EthType(openflow.EthTypeIPv6), openflow.IPProto(ipProtoFragment)).
			do(openflow.Move(regAddress6.All(), openflow.FieldIPv6Dst.All())).goTo(serviceEndpoint)
		r.on(serviceCommit, 0).goTo(output)
		if r.policed() {
			return // policyFeature has committed the others
		}
		// Nothing answers what the host gets back because its Service has no endpoint. A connection
		// of it would keep the client from the endpoint that comes next.
		r.on(serviceCommit, 120, from(fromGateway), toPort(datapath.GatewayPort)).goTo(output)
		for _, t := range ipTypes {
			ip := openflow.EthType(t)
			first := openflow.CTState(openflow.CTTrk|openflow.CTNew, 0)
			// The host refuses a connection. There is none, whatever conntrack thinks.
			r.on(serviceCommit, 110, from(fromGateway), ip, openflow.IPProto(openflow.IPProtoTCP),
				openflow.TCPFlags(tcpRST, tcpRST)).goTo(output)
			r.on(serviceCommit, 100, from(fromGateway), ip,
				first).do(commitMarked(openflow.CT{Zone: clusterZone})).goTo(output)
		}
	},
}

// commit emits what translates to an endpoint of a list.
func (r *rules) commitTo(list uint32, p intent.NodeServicePort, e intent.Endpoint, id uint32) {
	r.on(serviceEndpoint, 100, ipType(p), regServed.Value(uint64(list)), regEndpoint.Value(uint64(id))).
		do(openflow.Pack(openflow.CT{Commit: true, Zone: clusterZone,
			NAT: &openflow.NAT{DNAT: true, AddrMin: e.Address, PortMin: e.Port}, Exec: r.markOf()})).
		goTo(hairpinCommit)
}
