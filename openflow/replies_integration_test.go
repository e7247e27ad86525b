// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"coelan.io/coelan/internal/ovstest"
)

// rawConn is a connection that shows the bytes of what a switch answers.
type rawConn struct {
	net.Conn
	xid uint32
}

func (c *rawConn) send(t *testing.T, m Message) {
	t.Helper()
	c.xid++
	b, err := AppendMessage(nil, c.xid, m)
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// receive returns the next message.
func (c *rawConn) receive() ([]byte, error) {
	b := make([]byte, HeaderLen)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	h, err := ParseHeader(b)
	if err != nil {
		return nil, err
	}
	b = append(b, make([]byte, int(h.Length)-HeaderLen)...)
	_, err = io.ReadFull(c, b[HeaderLen:])
	return b, err
}

// until returns what comes until a message of the given type, or for a tenth of a second.
func (c *rawConn) until(t *testing.T, typ uint8) (list [][]byte) {
	t.Helper()
	for {
		wait := 20 * time.Second
		if typ == typeHello {
			wait = 100 * time.Millisecond
		}
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		b, err := c.receive()
		if errors.Is(err, os.ErrDeadlineExceeded) && typ == typeHello {
			return list
		}
		if err != nil {
			t.Fatalf("waiting for a message of type %d: %v", typ, err)
		}
		list = append(list, b)
		if b[1] == typ {
			return list
		}
	}
}

// TestReplies asks a real Open vSwitch all that this package can ask, and checks that each
// answer is decoded and encoded without loss. With -update it records the answers.
func TestReplies(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ovs := ovstest.Start(t, ovstest.Options{})
	if err := ovs.AddBridge(ctx, "br0"); err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("unix", ovs.MgmtSocket("br0"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &rawConn{Conn: nc}

	var cases []golden
	keep := func(what string, list [][]byte) {
		for _, b := range list {
			if b[1] == typeBarrierReply && what != "barrier" {
				continue
			}
			cases = append(cases, golden{input: what, wire: b, text: ofpPrint(t, b)})
		}
	}
	for _, s := range replySteps {
		for _, m := range s.send {
			c.send(t, m)
		}
		c.send(t, &BarrierRequest{})
		keep(s.what, c.until(t, typeBarrierReply))
		keep(s.what, c.until(t, typeHello)) // what comes unasked may come after the barrier
	}
	if _, err := ovs.Vsctl(ctx, "add-port", "br0", "p7", "--", "set", "interface", "p7", "type=internal", "ofport_request=7"); err != nil {
		t.Fatal(err)
	}
	keep("a port is added", c.until(t, typePortStatus))
	c.send(t, &MultipartRequest{Body: &PortDescRequest{PortAny}})
	keep("port descriptions", c.until(t, typeMultipartReply))
	c.send(t, &MultipartRequest{Body: &PortStatsRequest{PortAny}})
	keep("port counters", c.until(t, typeMultipartReply))

	checkReplies(t, cases)
	if *update {
		compareGolden(t, "replies", cases)
	}
}

// checkReplies checks that there is a reply of each kind and none that is not known.
func checkReplies(t *testing.T, cases []golden) {
	kinds := map[string]bool{}
	for _, c := range cases {
		xid, m, err := Decode(c.wire)
		if err != nil {
			t.Errorf("%s: %v\n%x", c.input, err, c.wire)
			continue
		}
		kinds[kindOfMessage(m)] = true
		b, err := AppendMessage(nil, xid, m)
		if err != nil || string(b) != string(c.wire) && !lossy(c.wire, m) {
			t.Errorf("%s: %s: encoded again, %v:\n%x\n%x", c.input, kindOfMessage(m), err, c.wire, b)
		}
	}
	for _, want := range []string{
		"*openflow.Hello", "*openflow.Error", "*openflow.EchoReply", "*openflow.Features", "*openflow.GetConfigReply",
		"*openflow.BarrierReply", "*openflow.RoleReply", "*openflow.BundleControl", "*openflow.TLVTableReply",
		"*openflow.PacketIn2", "*openflow.FlowRemoved", "*openflow.PortStatus", "*openflow.Desc", "openflow.FlowDescs",
		"openflow.TableStats", "openflow.PortStats", "openflow.PortDescs", "openflow.GroupStats", "openflow.GroupDescs",
		"openflow.MeterStats", "openflow.MeterConfigs", "openflow.FlowUpdates",
	} {
		if !kinds[want] {
			t.Errorf("no %s came", want)
		}
		delete(kinds, want)
	}
	for kind := range kinds {
		t.Errorf("%s came", kind)
	}
}

// step is a question to a switch.
type step struct {
	what string
	send []Message
}

var replySteps = []step{
	{"hello", []Message{&Hello{}}},
	{"barrier", nil},
	{"echo", []Message{&EchoRequest{[]byte("coelan")}}},
	{"features", []Message{&FeaturesRequest{}}},
	{"configuration", []Message{&SetConfig{SwitchConfig{MissSendLen: 0xffff}}, &GetConfigRequest{}}},
	{"role", []Message{&RoleRequest{Role: RoleEqual}}},
	{"description", []Message{&MultipartRequest{Body: &DescRequest{}}}},
	{"tunnel options", []Message{
		&TLVTableMod{Command: TLVAdd, Mappings: []TLVMapping{{0xffff, 0, 4, 0}, {0xffff, 1, 8, 1}}}, &TLVTableRequest{}}},
	{"groups", []Message{
		AddGroup(Group{ID: 7, Type: GroupSelect, SelectionMethod: "hash", SelectionParam: 3,
			SelectionFields: HashOn(FieldIPv4Src, FieldIPv4Dst),
			Buckets: []Bucket{
				{ID: 5, Weight: 1, Actions: []Action{SetField(IPDst(tenOne)), Resubmit(9)}}, {ID: 6, Weight: 100}}}),
		AddGroup(Group{ID: 8, Type: GroupFastFailover, Buckets: []Bucket{
			{WatchPort: PortLocal, Actions: []Action{Output(PortLocal)}}, {WatchGroup: 7, Actions: []Action{ToGroup(7)}}}}),
		&MultipartRequest{Body: &GroupDescRequest{GroupAllGroups}}, &MultipartRequest{Body: &GroupStatsRequest{GroupAllGroups}}}},
	{"meters", []Message{
		&MeterMod{MeterAdd, Meter{5, MeterPktps | MeterBurst, []MeterBand{{MeterDrop, 1000, 50, 0}}}},
		&MultipartRequest{Body: &MeterConfigRequest{MeterAll}}, &MultipartRequest{Body: &MeterStatsRequest{MeterAll}}}},
	{"flow monitor", []Message{&MultipartRequest{Body: &FlowMonitorRequest{ID: 3, Table: TableAll,
		Flags: MonitorInitial | MonitorAdd | MonitorRemoved | MonitorModify | MonitorInstructions}}}},
	{"flows", []Message{
		AddFlow(Flow{Table: 9, Priority: 7, Cookie: 0xc0e0, Goto: 10, Match: NewMatch(IPDst(ten), FieldReg1.Value(5)),
			Actions: []Action{DecTTL(), Learn{Table: 11, Priority: 1, Specs: []LearnSpec{
				LearnMatchValue(EthType(EthTypeIPv4)), LearnMatchField(FieldIPv4Dst.All(), FieldIPv4Src.All())}}}}),
		AddFlow(Flow{Table: 10, Cookie: 0xc0e1, Flags: FlowSendFlowRem, Actions: []Action{
			Controller{Userdata: "coelan", Pause: true}, Controller{MaxLen: 60, Userdata: "cut", Meter: 5}, Output(PortLocal)}}),
		AllFlows(), &MultipartRequest{Body: &TableStatsRequest{}}}},
	{"packet-in of the controller's own form", []Message{
		&PacketOut{InPort: PortController, Actions: []Action{Controller{Reason: ReasonAction}}, Packet: testPacket}}},
	{"packet-in", []Message{
		&SetPacketInFormat{PacketInNXT2}, &PacketOut{InPort: PortLocal, Match: NewMatch(FieldReg1.Value(5), TunnelID(7)),
			Actions: []Action{Push(FieldReg1.All()), Resubmit(9)}, Packet: testPacket}}},
	{"flow removed", []Message{&FlowMod{Command: FlowDelete, Flow: Flow{Table: 10}}}},
	{"errors", []Message{
		AddFlow(Flow{Match: NewMatch(FieldTCPDst.Value(80))}),
		AddFlow(Flow{Actions: []Action{Conjunction(1, 1, 1)}}), &CTFlushZone{7}, &Unknown{Type: 99}}},
	{"bundles", []Message{
		&BundleControl{1, BundleOpenRequest, BundleAtomic | BundleOrdered},
		&BundleAdd{1, BundleAtomic | BundleOrdered, AddFlow(Flow{Table: 50})},
		&BundleControl{1, BundleCommitRequest, BundleAtomic | BundleOrdered},
		&BundleControl{2, BundleOpenRequest, BundleAtomic}, &BundleControl{2, BundleDiscardRequest, BundleAtomic}}},
}

// testPacket is UDP from 192.168.0.1 to 10.0.0.1, 100 bytes long.
var testPacket = append([]byte{
	0x0a, 0xc0, 0xe1, 0, 0, 1, 0x0a, 0xce, 10, 0, 0, 1, 8, 0,
	0x45, 0, 0, 86, 0, 1, 0, 0, 64, 17, 0x6f, 0x95, 192, 168, 0, 1, 10, 0, 0, 1,
	0x30, 0x39, 0, 53, 0, 66, 0, 0,
}, make([]byte, 58)...)
