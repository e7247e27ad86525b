// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"coelan.io/coelan/internal/intent"
)

// TCP's flags (RFC 9293, section 3.1) and option (RFC 9293, section 3.7.1).
const (
	tcpFlagsOffset = 13
	tcpRST         = 1 << 2
	tcpSYN         = 1 << 1
	mssOption      = 2
)

// mssChain has both ends of a TCP connection that a pod has through this kernel send segments that
// fit the routes to both of them. Path MTU discovery cannot do this for pods of private routers: an
// ICMP error quotes the node address that stands for the pod, which means nothing to the pod. The
// first packet of each direction passes here, SYN and SYN with ACK, and the option only shrinks.
func mssChain(gateway string) chain {
	clamp := func(name string, key expr.MetaKey) rule {
		return anyFamily(name+" "+gateway+" tcp flags syn / syn,rst tcp option maxseg size set rt mtu",
			device(key, expr.CmpOpEq, gateway), l4proto(intent.TCP), []expr.Any{
				&expr.Payload{
					DestRegister: register(0), Base: expr.PayloadBaseTransportHeader, Offset: tcpFlagsOffset, Len: 1,
				},
				&expr.Bitwise{
					SourceRegister: register(0), DestRegister: register(0), Len: 1,
					Mask: []byte{tcpSYN | tcpRST}, Xor: []byte{0},
				},
				&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{tcpSYN}},
				&expr.Rt{Register: register(0), Key: expr.RtTCPMSS},
				&expr.Byteorder{
					SourceRegister: register(0), DestRegister: register(0), Op: expr.ByteorderHton, Len: 2, Size: 2,
				},
				&expr.Exthdr{
					SourceRegister: register(0), Type: mssOption, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt,
				},
			})
	}
	rules := []rule{clamp("iifname", expr.MetaKeyIIFNAME), clamp("oifname", expr.MetaKeyOIFNAME)}
	return baseChain("mss", nftables.ChainTypeFilter, nftables.ChainHookForward, *nftables.ChainPriorityMangle, rules)
}
