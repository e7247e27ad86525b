// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/test/lab/probe"
)

// virtual is a bridge with three ports and flows written by hand, as small as they can be, that
// translate destinations the way the pipeline does: the group writes the endpoint over the
// Service's address, the last table writes it back and has conntrack translate it in the same pass.
// What the pipeline rests on is tested here alone, so that a version of Open vSwitch that does
// otherwise shows itself.
type virtual struct {
	t      *testing.T
	ovs    *ovstest.OVS
	netdev bool
	pods   []*ovstest.Namespace
}

// The addresses of the rig by family.
func virtualPod(i int, v6 bool) string {
	if v6 {
		return fmt.Sprint("fd09::1", i)
	}
	return fmt.Sprint("10.9.0.1", i)
}

// virtualPrivate is how the last pod knows itself, which others know by virtualPod.
func virtualPrivate(v6 bool) string {
	if v6 {
		return "fd60::2"
	}
	return "10.60.0.2"
}

func virtualIP(i int, v6 bool) string {
	if v6 {
		return fmt.Sprint("fd96::", i)
	}
	return fmt.Sprint("10.96.0.", i)
}

func virtualSource(v6 bool) string {
	if v6 {
		return datapath.ServiceSourceIPv6.String()
	}
	return datapath.ServiceSourceIPv4.String()
}

// virtualServices are endpoint and port of each Service, by the number in its address.
var virtualServices = map[int]struct {
	name      string
	endpoints []int // pods
	port      int
	affinity  bool
}{
	1: {name: "plain", endpoints: []int{1}, port: 8080},
	2: {name: "hairpin", endpoints: []int{0}, port: 8080},
	3: {name: "closed", endpoints: []int{1}, port: 8081},
	4: {name: "private", endpoints: []int{2}, port: 8080},
	5: {name: "affinity", endpoints: []int{0, 1}, port: 8082, affinity: true},
	6: {name: "closed hairpin", endpoints: []int{0}, port: 8081},
}

const virtualFirst = 16 // the first pod's port

func newVirtual(t *testing.T) *virtual {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	v := &virtual{t: t, ovs: ovstest.Start(t, ovstest.Options{})}
	v.netdev = v.ovs.Datapath == "netdev"
	w := &world{t: t, netdev: v.netdev}
	node, err := ovstest.NewNamespace(v.ovs.Netns())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	if err := v.ovs.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	deaf := []string{}
	for i := range 3 {
		pod, name := w.namespace(), fmt.Sprint("pod", i)
		w.join(node, name, pod, "eth0", 1450)
		w.run(node, "ip link set "+name+" up")
		deaf = append(deaf, name)
		w.run(pod, "ip link set eth0 address "+virtualMAC(i), "ip link set eth0 up")
		for _, v6 := range []bool{false, true} {
			address, via := virtualPod(i, v6)+"/32", "10.9.0.1"
			if i == 2 {
				address = virtualPrivate(v6) + "/32"
			}
			if v6 {
				address, via = strings.TrimSuffix(address, "32")+"128", "fe80::1"
			}
			w.run(pod, "ip addr add "+address+" dev eth0"+map[bool]string{true: " nodad"}[v6],
				fmt.Sprintf("%s neigh replace %s lladdr %s dev eth0 nud permanent", ip(v6), via, datapath.RouterMAC),
				fmt.Sprintf("%s route add default via %s dev eth0 onlink", ip(v6), via))
		}
		if _, err := v.ovs.Vsctl(ctx, "add-port", "br0", name, "--", "set", "interface", name, fmt.Sprint("ofport_request=", virtualFirst+i)); err != nil {
			t.Fatal(err)
		}
		v.pods = append(v.pods, pod)
	}
	if w.netdev {
		w.run(node, "nft add table netdev deaf",
			"nft add chain netdev deaf ports { type filter hook ingress devices = { "+strings.Join(deaf, " , ")+" } priority 0 ; policy drop ; }")
	}
	v.install(ctx)
	return v
}

func virtualMAC(i int) string { return fmt.Sprintf("0a:00:00:00:00:%02x", 0x10+i) }

// virtualFamily, virtualFrontend and virtualEndpoint are the flows, in the numbers of the
// pipeline's tables. reg0: 1 a Service's connection, 2 leaves by the port it came in by, 4
// the endpoint is chosen now. reg8, reg9: the port of the Service, the endpoint. reg10,
// reg12: its port and address.
var virtualFamily = template.Must(template.New("").Parse(`
table=0,priority=10,{{.IP}},actions=goto_table:30
table=30,priority=20,{{.IP}},{{.Dst}}={{.Source}},actions=ct(zone=65535,nat,table=29)
table=30,priority=10,{{.IP}},actions=ct(zone=1,nat,table=31)
table=29,{{.IP}},actions=ct(zone=1,nat,table=31)
table=31,priority=20,{{.IP}},ct_state=+trk,ct_mark=2/2,actions=set_field:1->reg0,goto_table:50
table=31,priority=10,{{.IP}},actions=goto_table:32
table=32,priority=0,{{.IP}},actions=goto_table:50
table=38,{{.IP}},actions=goto_table:50
table=78,priority=1,{{.IP}},actions=goto_table:80
table=80,priority=1,{{.IP}},actions=goto_table:82
table=82,priority=30,{{.IP}},ct_state=+rpl,reg0=2/2,actions=IN_PORT
table=82,priority=20,{{.IP}},reg0=6/6,actions=ct(commit,zone=65535,nat(src={{.Source}})),IN_PORT
table=82,priority=15,{{.IP}},reg0=2/2,actions=ct(zone=65535,nat,table=90)
table=82,priority=1,{{.IP}},actions=output:NXM_NX_REG3[]
table=90,{{.IP}},actions=IN_PORT
`))

var virtualPort = template.Must(template.New("").Parse(`
table=50,{{.IP}},{{.Dst}}={{.Pod}},actions=set_field:{{.RouterMAC}}->eth_src,set_field:{{.MAC}}->eth_dst,dec_ttl,set_field:{{.Port}}->reg3,goto_table:78
table=78,priority=10,{{.IP}},in_port={{.Port}},reg3={{.Port}},reg0=1/1,actions=set_field:2/2->reg0,goto_table:80
{{with .Private}}
table=0,priority=20,{{$.IP}},in_port={{$.Port}},actions=set_field:{{$.Pod}}->{{$.Src}},goto_table:30
table=82,priority=10,{{$.IP}},reg3={{$.Port}},actions=set_field:{{.}}->{{$.Dst}},output:NXM_NX_REG3[]
{{end}}
`))

var virtualFrontend = template.Must(template.New("").Parse(`
table=32,priority=10,{{.L4}},ct_state=+new,{{.Dst}}={{.VIP}},{{.Proto}}_dst=80,actions=move:{{.NXMDst}}->{{.Kept}},set_field:80->reg10,set_field:{{.Number}}->reg8,set_field:5->reg0,{{.Choose}}
table=35,priority=10,{{.L4}},reg8={{.Number}},actions=group:{{.Number}}
table=36,{{.L4}},reg8={{.Number}},actions=learn(table=34,idle_timeout=2,priority=10,eth_type={{.EthType}},{{.NXMSrc}},NXM_NX_REG8[],load:NXM_NX_REG9[]->NXM_NX_REG9[]),resubmit(,35)
`))

var virtualEndpoint = template.Must(template.New("").Parse(`
table=35,priority=20,{{.L4}},reg8={{.Number}},reg9={{.ID}},actions={{.To}}
table=80,priority=10,{{.L4}},ct_state=+new,reg9={{.ID}},actions=move:{{.Kept}}->{{.NXMDst}},move:NXM_NX_REG10[0..15]->{{.NXMPort}},ct(commit,zone=1,nat(dst={{.Endpoint}}),exec(set_field:2/2->ct_mark)),goto_table:82
`))

// virtualFields are what the templates know.
type virtualFields struct {
	IP, Dst, Src, EthType, Source, NXMDst, NXMSrc, Kept string // of the family
	RouterMAC, MAC, Pod, Private                        string // of a port
	Port                                                int
	L4, Proto, NXMPort, VIP, Choose                     string // of a port of a Service
	Number                                              int
	ID                                                  int // of an endpoint
	To, Endpoint                                        string
}

func virtualFieldsOf(v6 bool) virtualFields {
	if v6 {
		return virtualFields{
			IP: "ipv6", Dst: "ipv6_dst", Src: "ipv6_src", EthType: "0x86dd", Source: virtualSource(v6),
			NXMDst: "NXM_NX_IPV6_DST[]", NXMSrc: "NXM_NX_IPV6_SRC[]", Kept: "NXM_NX_XXREG3[]",
		}
	}
	return virtualFields{
		IP: "ip", Dst: "ip_dst", Src: "ip_src", EthType: "0x800", Source: virtualSource(v6),
		NXMDst: "NXM_OF_IP_DST[]", NXMSrc: "NXM_OF_IP_SRC[]", Kept: "NXM_NX_REG12[]",
	}
}

func (v *virtual) install(ctx context.Context) {
	v.t.Helper()
	var flows, groups strings.Builder
	emit := func(t *template.Template, f virtualFields) {
		if err := t.Execute(&flows, f); err != nil {
			v.t.Fatal(err)
		}
	}
	for _, v6 := range []bool{false, true} {
		f := virtualFieldsOf(v6)
		emit(virtualFamily, f)
		for i := range 3 {
			p := f
			p.RouterMAC, p.MAC, p.Pod, p.Port = datapath.RouterMAC.String(), virtualMAC(i), virtualPod(i, v6), virtualFirst+i
			if i == 2 {
				p.Private = virtualPrivate(v6)
			}
			emit(virtualPort, p)
		}
		for s := range virtualServices {
			for i, proto := range []string{"tcp", "udp", "sctp"} {
				f.Number = virtualNumber(s, i, v6)
				f.Proto, f.L4, f.VIP = proto, proto, virtualIP(s, v6)
				f.NXMPort = map[string]string{"tcp": "NXM_OF_TCP_DST[]", "udp": "NXM_OF_UDP_DST[]", "sctp": "OXM_OF_SCTP_DST[]"}[proto]
				if v6 {
					f.L4 += "6"
				}
				groups.WriteString(v.frontend(emit, f, s, v6))
			}
		}
	}
	dir := v.t.TempDir()
	for _, f := range []struct{ command, lines string }{{"add-groups", groups.String()}, {"add-flows", flows.String()}} {
		path := filepath.Join(dir, f.command)
		if err := os.WriteFile(path, []byte(f.lines), 0o600); err != nil {
			v.t.Fatal(err)
		}
		if _, err := v.ovs.Ofctl(ctx, f.command, "br0", path); err != nil {
			v.t.Fatal(err)
		}
	}
}

// virtualNumber is the number of a Service's port, of the protocol TCP, UDP or SCTP,
// and of its group.
func virtualNumber(service, proto int, v6 bool) int {
	return 10*service + 2*proto + map[bool]int{true: 1}[v6]
}

// frontend emits a port of a Service with its endpoints, and returns its group.
func (v *virtual) frontend(emit func(*template.Template, virtualFields), f virtualFields, service int, v6 bool) string {
	svc := virtualServices[service]
	f.Choose = fmt.Sprint("group:", f.Number)
	method := "dp_hash"
	if svc.affinity {
		// The client's port is among what is hashed, so that there is no datapath flow for its next
		// connection, and only table 34 pins.
		f.Choose, method = "resubmit(,34),resubmit(,35)", fmt.Sprintf("hash,fields(%s,%s_src)", f.Src, f.Proto)
	}
	emit(virtualFrontend, f)
	group := fmt.Sprintf("group_id=%d,type=select,selection_method=%s", f.Number, method)
	for i, pod := range svc.endpoints {
		f.ID = 10*f.Number + i
		f.Endpoint = net.JoinHostPort(virtualPod(pod, v6), fmt.Sprint(svc.port))
		f.To = fmt.Sprintf("set_field:%s->%s,set_field:%d->%s_dst,set_field:%d->reg9,resubmit(,38)", virtualPod(pod, v6), f.Dst, svc.port, f.Proto, f.ID)
		emit(virtualEndpoint, f)
		bucket := f.To
		if svc.affinity {
			bucket = fmt.Sprintf("set_field:%d->reg9,resubmit(,36)", f.ID)
		}
		group += fmt.Sprintf(",bucket=bucket_id=%d,actions=%s", f.ID, bucket)
	}
	return group + "\n"
}

func TestVirtual(t *testing.T) {
	v := newVirtual(t)
	networks := []string{"tcp", "udp"}
	if probe.HasSCTP() {
		networks = append(networks, "sctp")
	} else {
		t.Log("the kernel has no SCTP: not tried")
	}
	for _, v6 := range []bool{false, true} {
		for i, address := range []string{virtualPod(0, v6), virtualPod(1, v6), virtualPrivate(v6)} {
			serve(t, v.pods[i], address, 8080)
		}
		for s, svc := range virtualServices {
			if svc.affinity {
				continue
			}
			for _, network := range networks {
				t.Run(fmt.Sprintf("%s/%s/%s", familyName(v6), svc.name, network), func(t *testing.T) {
					seen := virtualPod(0, v6)
					if strings.Contains(svc.name, "hairpin") {
						seen = virtualSource(v6)
					}
					long := payload
					if svc.name == "private" && v.netdev && !v6 {
						// The userspace datapath damages fragments when a flow
						// writes their address.
						long = ""
					}
					to := netip.AddrPortFrom(netip.MustParseAddr(virtualIP(s, v6)), 80)
					err := talk(t.Context(), v.pods[0], network, to, seen, "coelan", long, "coelan")
					if closed := strings.Contains(svc.name, "closed"); closed && !errors.Is(err, syscall.ECONNREFUSED) || !closed && err != nil {
						t.Error(err)
					}
				})
			}
			if svc.name == "plain" {
				t.Run(familyName(v6)+"/first in fragments", func(t *testing.T) {
					to := netip.AddrPortFrom(netip.MustParseAddr(virtualIP(s, v6)), 80)
					err := talk(t.Context(), v.pods[0], "udp", to, virtualPod(0, v6), payload, "coelan")
					// Behind conntrack the userspace datapath has fragments as before, and only the
					// first of them has a port.
					if got := err == nil; got == v.netdev {
						t.Error(err)
					}
				})
			}
		}
	}
	v.dump()
}

// A flow that the first packet of a client makes leads its next connections to the same endpoint,
// stays as long as there are some, and gives way when the endpoint is gone.
func TestVirtualAffinity(t *testing.T) {
	t.Parallel()
	v := newVirtual(t)
	ctx := t.Context()
	const service, idle = 5, 2 * time.Second
	for _, v6 := range []bool{false, true} {
		for i := range 2 {
			s, err := probe.Serve(v.pods[i], netip.AddrPortFrom(netip.MustParseAddr(virtualPod(i, v6)), 8082), func(c net.Conn) { fmt.Fprint(c, i) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
		}
		to := netip.AddrPortFrom(netip.MustParseAddr(virtualIP(service, v6)), 80)
		ask := func() string {
			t.Helper()
			conn, err := dial(ctx, v.pods[2], "tcp", to)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			text, err := io.ReadAll(conn)
			if err != nil || len(text) != 1 {
				t.Fatal(string(text), err)
			}
			return string(text)
		}
		learned := func() int {
			t.Helper()
			out, err := v.ovs.Ofctl(ctx, "dump-flows", "br0", "table=34")
			if err != nil {
				t.Fatal(err)
			}
			return strings.Count(out, "reg9")
		}
		first := ask()
		for range 20 {
			if got := ask(); got != first {
				t.Fatalf("%s: endpoint %s at once after %s", familyName(v6), got, first)
			}
		}
		if n := learned(); n != 1 {
			t.Errorf("%s: %d learned flows", familyName(v6), n)
		}
		// Longer than the flow lives without a connection.
		pause := time.NewTicker(idle / 8)
		defer pause.Stop()
		for end := time.Now().Add(2 * idle); time.Now().Before(end); <-pause.C {
			if got := ask(); got != first {
				t.Fatalf("%s: endpoint %s after %s", familyName(v6), got, first)
			}
		}
		if n := learned(); n != 1 {
			t.Errorf("%s: %d learned flows of a client with connections", familyName(v6), n)
		}
		number := virtualNumber(service, 0, v6)
		gone, _ := strconv.Atoi(first)
		prefix := map[bool]string{false: "tcp", true: "tcp6"}[v6]
		if _, err := v.ovs.Ofctl(ctx, "--strict", "del-flows", "br0", fmt.Sprintf("table=35,priority=20,%s,reg8=%d,reg9=%d", prefix, number, number*10+gone)); err != nil {
			t.Fatal(err)
		}
		if _, err := v.ovs.Ofctl(ctx, "remove-buckets", "br0", fmt.Sprintf("group_id=%d,command_bucket_id=%d", number, number*10+gone)); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if got := ask(); got == first {
				t.Errorf("%s: the endpoint is gone, and still chosen", familyName(v6))
			}
		}
		deadline := time.Now().Add(5 * idle)
		for learned() > 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the learned flow of a client without connections stays", familyName(v6))
			}
			<-pause.C
		}
	}
	v.dump()
}

// dump prints what the datapath did.
func (v *virtual) dump() {
	if !v.t.Failed() {
		return
	}
	for _, of := range []string{"flows", "conntrack"} {
		out, _ := v.ovs.Appctl(v.t.Context(), "dpctl/dump-"+of)
		v.t.Log(out)
	}
}

func familyName(v6 bool) string { return map[bool]string{false: "IPv4", true: "IPv6"}[v6] }

// talk says one thing after the other in one connection and expects each back, from a server that
// saw the client's address.
func talk(ctx context.Context, ns *ovstest.Namespace, network string, to netip.AddrPort, client string, say ...string) error {
	conn, err := dial(ctx, ns, network, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(talkTime)); err != nil {
		return err
	}
	for i, data := range say {
		want := data
		if network == "udp" || i == 0 { // serve says it once in a stream
			want = client + " " + data
		}
		if _, err := conn.Write([]byte(data)); err != nil {
			return fmt.Errorf("%d of %d: %w", i+1, len(say), err)
		}
		got := make([]byte, len(want))
		if network == "udp" {
			_, err = conn.Read(got)
		} else {
			_, err = io.ReadFull(conn, got)
		}
		if err != nil {
			return fmt.Errorf("%d of %d: %w", i+1, len(say), err)
		}
		if string(got) != want {
			return fmt.Errorf("%d of %d: got %.60q, want %.60q", i+1, len(say), got, want)
		}
	}
	return nil
}

const talkTime = 3 * time.Second

func dial(ctx context.Context, ns *ovstest.Namespace, network string, to netip.AddrPort) (conn net.Conn, err error) {
	if network == "sctp" {
		return probe.DialSCTP(ctx, ns, to)
	}
	dialer := net.Dialer{Timeout: talkTime}
	err = ns.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, network, to.String())
		return err
	})
	return conn, err
}
