// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/openflow"
)

// packet is a packet on a port, as far as the pipeline looks at it.
type packet struct {
	inPort         uint32
	tunSrc         netip.Addr // of a packet from the tunnel port
	vni            uint32
	vlan           uint16 // of a tagged packet
	ethSrc, ethDst intent.MAC

	kind     string     // "ip", "udp", "arp-request", "arp-reply", "solicit", "advertise"
	port     uint16     // the destination port of UDP
	src, dst netip.Addr // addresses; of ARP the sender's and the one asked for
	target   netip.Addr // asked for by a neighbor solicitation
	link     intent.MAC // sha of ARP, or SLL of ND (zero: no option)
	ttl      uint8

	// What conntrack says if it is asked, but that it does not know the connection where it looks
	// it up for the unknown-th time, from 1.
	reply, marked bool
	unknown       int
}

// outcome is what should happen to a packet.
type outcome struct {
	Drop     bool
	Answer   intent.MAC // sent back, with this MAC as answer
	Port     uint32
	EthSrc   intent.MAC
	EthDst   intent.MAC
	Src, Dst netip.Addr
	TTL      uint8
	TunDst   netip.Addr
	VNI      uint32
	VLAN     uint16
	Asked    string // what the agent is given the packet for, instead of that it is sent
	Commits  []int  // conntrack zones in which the connection is marked
	Lookups  []int  // conntrack zones in which it is looked up
}

// tracer is a bridge with a port of each kind that tells what it would do with a
// packet.
type tracer struct {
	name     string
	vswitchd *appctl.Client
	bridge   *bridge.Bridge
	compiler *Compiler
}

// lastTracedPort is the last port that tracers' bridges have.
const lastTracedPort = datapath.FirstPodPort + 27

// newTracers makes some bridges in one Open vSwitch.
func newTracers(t *testing.T, count int) []*tracer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ovs := ovstest.Start(t, ovstest.Options{})
	var tracers []*tracer
	for n := range count {
		br := fmt.Sprint("br", n)
		if err := ovs.AddBridge(ctx, br); err != nil {
			t.Fatal(err)
		}
		tun := fmt.Sprint("tun", n)
		args := []string{
			"add-port", br, tun, "--", "set", "interface", tun, "type=vxlan", "ofport_request=1",
			"options:remote_ip=flow", "options:key=flow", fmt.Sprint("options:dst_port=", 4789+n),
		}
		for port := datapath.GatewayPort; port <= lastTracedPort; port++ {
			if port > flatUplink && port < datapath.FirstPodPort {
				continue
			}
			name := fmt.Sprint("p", n, "-", port)
			args = append(args, "--", "add-port", br, name, "--", "set", "interface", name, "type=internal", fmt.Sprint("ofport_request=", port))
		}
		if _, err := ovs.Vsctl(ctx, args...); err != nil {
			t.Fatal(err)
		}
		conn, err := openflow.Dial(ctx, "unix:"+ovs.MgmtSocket(br), openflow.ConnOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		tracers = append(tracers, &tracer{
			name: br, vswitchd: appctl.Vswitchd(ovs.Dir), compiler: New(),
			bridge: bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return conn, nil }, Learned: Learned}),
		})
	}
	return tracers
}

func (tr *tracer) load(ctx context.Context, state *intent.State) error {
	return tr.loadInput(ctx, inputOf(state))
}

func (tr *tracer) loadInput(ctx context.Context, in Input) error {
	res, err := tr.bridge.Sync(ctx, tr.compiler.Compile(in))
	if err == nil && len(res.Conflicts) > 0 {
		return fmt.Errorf("conflicts: %v", res.Conflicts)
	}
	return err
}

// knows has what comes for an address of an external network be a reply to what was known by
// another address, as conntrack, which a trace does not ask, would translate it. forget ends that.
func (tr *tracer) knows(ctx context.Context, address, known netip.Addr) (forget func() error, err error) {
	const owner = "conntrack"
	var back bridge.Rules
	for _, flows := range flowsOf(tr.compiler.desired, tr.compiler) {
		for _, f := range flows {
			i := slices.IndexFunc(f.Actions, func(a openflow.Action) bool { _, is := a.(openflow.CT); return is })
			if f.Table != floatingPort.ID || i < 0 || !strings.Contains(f.Match.String(), "_dst="+address.String()) {
				continue
			}
			f.Priority += 50 // below that of packets that are too big
			f.Actions = slices.Insert(slices.Clone(f.Actions), i, openflow.SetField(openflow.IPDst(known)))
			back.Flows = append(back.Flows, f)
		}
	}
	if len(back.Flows) != 1 {
		return nil, fmt.Errorf("%d flows give conntrack what comes for %s", len(back.Flows), address)
	}
	sync := func() error {
		_, err := tr.bridge.Sync(ctx, tr.compiler.desired)
		return err
	}
	tr.compiler.desired.Set(owner, &back)
	return func() error {
		tr.compiler.desired.Remove(owner)
		return sync()
	}, sync()
}

// trace asks Open vSwitch for the packet's outcome.
func (tr *tracer) trace(ctx context.Context, p packet) (outcome, string, error) {
	ct := "trk,new"
	if p.reply {
		ct = "trk,est,rpl"
	}
	// All lookups of a reply find its connection: where it is translated, and in its port's zone.
	args := []string{tr.name, traceFlow(p)}
	for i := range 3 {
		if i+1 == p.unknown {
			args = append(args, "--ct-next", "trk,new")
		} else {
			args = append(args, "--ct-next", ct)
		}
	}
	text, err := tr.vswitchd.Call(ctx, "ofproto/trace", args...)
	if err != nil {
		return outcome{}, text, err
	}
	return tr.read(text)
}

// tracedPort is the source port of packets that are traced.
const tracedPort = 1234

// traceFlow is a packet as ofproto/trace takes it.
func traceFlow(p packet) string {
	f := []string{fmt.Sprintf("in_port=%d,dl_src=%s,dl_dst=%s", p.inPort, p.ethSrc, p.ethDst)}
	if p.inPort == datapath.TunnelPort {
		kind := "tun"
		if p.tunSrc.Is6() {
			kind = "tun_ipv6"
		}
		f = append(f, fmt.Sprintf("tun_id=%d,%s_src=%s", p.vni, kind, p.tunSrc))
	}
	if p.marked {
		f = append(f, "ct_mark=1")
	}
	switch {
	case p.kind == "arp-request" || p.kind == "arp-reply":
		op := map[string]int{"arp-request": 1, "arp-reply": 2}[p.kind]
		f = append(f, fmt.Sprintf("arp,arp_op=%d,arp_sha=%s,arp_spa=%s,arp_tpa=%s", op, p.link, p.src, p.dst))
	case p.kind == "solicit":
		f = append(f, fmt.Sprintf("icmp6,icmpv6_type=135,icmpv6_code=0,ipv6_src=%s,ipv6_dst=%s,nw_ttl=%d,nd_target=%s,nd_sll=%s", p.src, p.dst, p.ttl, p.target, p.link))
	case p.kind == "advertise":
		f = append(f, fmt.Sprintf("icmp6,icmpv6_type=136,icmpv6_code=0,ipv6_src=%s,ipv6_dst=%s,nw_ttl=%d,nd_target=%s", p.src, p.dst, p.ttl, p.target))
	case p.kind == "udp":
		f = append(f, fmt.Sprintf("udp,nw_src=%s,nw_dst=%s,nw_ttl=%d,udp_src=%d,udp_dst=%d", p.src, p.dst, p.ttl, tracedPort, p.port))
	case p.src.Is4():
		f = append(f, fmt.Sprintf("tcp,nw_src=%s,nw_dst=%s,nw_ttl=%d,tcp_src=%d,tcp_dst=80", p.src, p.dst, p.ttl, tracedPort))
	default:
		f = append(f, fmt.Sprintf("tcp6,ipv6_src=%s,ipv6_dst=%s,nw_ttl=%d,tcp_src=%d,tcp_dst=80", p.src, p.dst, p.ttl, tracedPort))
	}
	if p.vlan != 0 { // after all fields, or they lack their Ethernet type
		f = append(f, fmt.Sprintf("vlan_tci=%#x", 0x1000|p.vlan))
	}
	return strings.Join(f, ",")
}

var (
	outputLine = regexp.MustCompile(`-> output port is (\d+)`)
	cookieText = regexp.MustCompile(`cookie 0x([0-9a-f]+)`)
	fieldText  = regexp.MustCompile(`([a-z0-9_]+)=([^,\s]+)`)
	keyText    = regexp.MustCompile(`set_field:(0x[0-9a-f]+)->tun_id`)
	remoteText = regexp.MustCompile(`set_field:([0-9a-f.:]+)->tun_(?:ipv6_)?dst`)
	agentText  = regexp.MustCompile(`\n +controller\(userdata=([0-9a-f.]+)`)
	setText    = regexp.MustCompile(`set\((eth|ipv4|ipv6)\(([^)]*)\)\)`)
	ctText     = regexp.MustCompile(`ct\((commit,)?zone=(\d+)`)
)

// read finds the outcome in what ofproto/trace printed. A packet that is dropped
// must have been so by a flow that tells why.
func (tr *tracer) read(text string) (outcome, string, error) {
	var o outcome
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "Datapath actions:") {
			continue
		}
		for _, ct := range ctText.FindAllStringSubmatch(line, -1) {
			zone, _ := strconv.Atoi(ct[2])
			if ct[1] != "" {
				o.Commits = append(o.Commits, zone)
			} else {
				o.Lookups = append(o.Lookups, zone)
			}
		}
	}
	f := finalFields(text)
	var err error
	if o.EthDst, err = intent.ParseMAC(f["dl_dst"]); err != nil {
		return o, text, err
	}
	if o.EthSrc, err = intent.ParseMAC(f["dl_src"]); err != nil {
		return o, text, err
	}
	vlan, _ := strconv.ParseUint(f["dl_vlan"], 10, 12)
	o.VLAN = uint16(vlan)
	switch port := outputLine.FindStringSubmatch(text); {
	case strings.Contains(text, "\n    IN_PORT"):
		return outcome{Answer: o.EthSrc, VLAN: o.VLAN}, text, nil
	case port == nil && forAgent(text) != "":
		o.Asked = forAgent(text)
	case port == nil || strings.Contains(text, "skipping output to input port"):
		cookies := cookieText.FindAllStringSubmatch(text, -1)
		cookie, _ := strconv.ParseUint(cookies[len(cookies)-1][1], 16, 64)
		if m, ok := tr.compiler.Explain(cookie); !ok || !m.Drops() {
			return o, text, fmt.Errorf("dropped without a reason: cookie %#x means %+v", cookie, m)
		}
		return outcome{Drop: true, Lookups: o.Lookups}, text, nil
	default:
		n, _ := strconv.ParseUint(port[1], 10, 32)
		o.Port = uint32(n)
	}
	o.readHeader(f, text)
	return o, text, nil
}

// forAgent is what the agent is given the packet for, if it is to find the MAC of the next hop, or
// to pass on a message of DHCP.
func forAgent(text string) string {
	for _, found := range agentText.FindAllStringSubmatch(text, -1) {
		var userdata []byte
		for b := range strings.SplitSeq(found[1], ".") {
			c, _ := strconv.ParseUint(b, 16, 8)
			userdata = append(userdata, byte(c))
		}
		switch kind, _ := Kind(userdata); kind {
		case UnresolvedUserdata, DHCPUserdata, LeaseUserdata:
			return string(userdata)
		}
	}
	return ""
}

// readHeader takes what the packet has when it leaves.
func (o *outcome) readHeader(f map[string]string, text string) {
	ttl, _ := strconv.ParseUint(f["nw_ttl"], 10, 8)
	o.TTL = uint8(ttl)
	for _, family := range []struct{ src, dst string }{{"nw_src", "nw_dst"}, {"ipv6_src", "ipv6_dst"}} {
		if src, err := netip.ParseAddr(f[family.src]); err == nil {
			o.Src, o.Dst = src, netip.MustParseAddr(f[family.dst])
		}
	}
	if o.Port == datapath.TunnelPort {
		if keys := keyText.FindAllStringSubmatch(text, -1); keys != nil {
			// "Final flow" does not tell.
			vni, _ := strconv.ParseUint(keys[len(keys)-1][1], 0, 24)
			o.VNI = uint32(vni)
		}
		for _, name := range []string{"tun_dst", "tun_ipv6_dst"} {
			if a, err := netip.ParseAddr(f[name]); err == nil && !a.IsUnspecified() {
				o.TunDst = a
			}
		}
		// Nor does it where the length was compared before.
		if set := remoteText.FindAllStringSubmatch(text, -1); !o.TunDst.IsValid() && set != nil {
			o.TunDst, _ = netip.ParseAddr(set[len(set)-1][1])
		}
	}
}

// finalFields are those of the packet when it leaves.
func finalFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "Flow: ") && (!strings.HasPrefix(line, "Final flow: ") || strings.Contains(line, "unchanged")) {
			continue
		}
		if strings.HasPrefix(line, "Final flow: ") {
			delete(fields, "dl_vlan") // taken off on the way
		}
		for _, f := range fieldText.FindAllStringSubmatch(line, -1) {
			fields[f[1]] = f[2]
		}
	}
	checked := strings.Index(text, "check_pkt_len(")
	if checked < 0 {
		return fields
	}
	// "Final flow" is before the check of the packet's length, in the same actions.
	text = text[strings.LastIndex(text[:checked], "\n")+1:]
	for _, set := range setText.FindAllStringSubmatch(text, -1) {
		names := map[string]map[string]string{
			"eth":  {"src": "dl_src", "dst": "dl_dst"},
			"ipv4": {"src": "nw_src", "dst": "nw_dst", "ttl": "nw_ttl"},
			"ipv6": {"src": "ipv6_src", "dst": "ipv6_dst", "hlimit": "nw_ttl"},
		}[set[1]]
		for _, f := range fieldText.FindAllStringSubmatch(set[2], -1) {
			if name := names[f[1]]; name != "" {
				fields[name] = f[2]
			}
		}
	}
	return fields
}
