// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/conntrack"
	"coelan.io/coelan/internal/backend/ovs/ctflush"
	"coelan.io/coelan/internal/backend/ovs/ctlimit"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/backend/ovs/streams"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// tracker is conntrack of the bridge's datapath.
type tracker struct {
	intent    *intent.Store
	vswitchd  *appctl.Client
	conn      func(context.Context) (*openflow.Conn, error)
	sysctlDir string
}

var (
	_ ctlimit.Conntrack   = tracker{}
	_ streams.Connections = tracker{}
)

// inKernel says whether the kernel's table is meant, which the agent can search by itself.
func (t tracker) inKernel() bool { return t.intent.State().Local().Datapath == intent.DatapathSystem }

// maxListed bounds the table of the userspace datapath that is listed: ovs-vswitchd's main thread
// prints it as text.
const maxListed = 10000

// Each implements streams.Connections.
func (t tracker) Each(ctx context.Context, zone uint16, fn func(conntrack.Connection)) error {
	if t.inKernel() {
		return conntrack.Kernel{}.Each(ctx, zone, uint8(intent.UDP), func(c conntrack.Connection) bool {
			fn(c)
			return true
		})
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	n, err := t.vswitchd.CountConnections(ctx)
	if err != nil {
		return err
	}
	if n > maxListed {
		return streams.ErrTooMany
	}
	list, err := t.vswitchd.Connections(ctx, zone)
	for _, c := range list {
		fn(c)
	}
	return err
}

// manyAddresses is how many are not searched for one by one.
const manyAddresses = 8

// Forget implements streams.Connections. Where there are many addresses, all UDP of
// the zone is forgotten.
func (t tracker) Forget(ctx context.Context, zone uint16, addresses []netip.Addr) error {
	match := openflow.CTFlush{Zone: &zone, Proto: uint8(intent.UDP)}
	messages := []*openflow.CTFlush{&match}
	if len(addresses) <= manyAddresses {
		messages = nil
		for _, a := range addresses {
			orig, reply := match, match
			orig.Orig.Src, reply.Reply.Src = a, a
			messages = append(messages, &orig, &reply)
		}
	}
	if err := t.table().Forget(ctx, messages); err != nil {
		return fmt.Errorf("UDP in zone %d of %v: %w", zone, addresses, err)
	}
	return nil
}

// Denied implements streams.Connections.
func (t tracker) Denied(mark uint32) bool { return mark&pipeline.MarkDenied != 0 }

// FromHost implements streams.Connections.
func (t tracker) FromHost(mark uint32) bool { return mark&pipeline.MarkHost != 0 }

// Settled implements streams.Connections: by a round of the datapath's flows that began after the
// call, of which the end of the second one from now on tells.
func (t tracker) Settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	for range 2 {
		if _, err := t.vswitchd.Call(ctx, "revalidator/wait"); err != nil {
			return fmt.Errorf("the datapath's flows: %w", err)
		}
	}
	return nil
}

// relearn has the userspace datapath forget the flows that it has learned, when the bridge's have
// changed. ovs-vswitchd would change each of them as the bridge's are now. But it looks for the one
// to be changed by a packet that fits. If a wider one, learned meanwhile, fits, too, it changes
// that, and the old one stays as it was while packets use it: dropped or allowed by what is no more
// (Open vSwitch 3.1, lib/dpif-netdev.c, flow_put_on_pmd).
func (t tracker) relearn(ctx context.Context) error {
	if t.inKernel() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	if _, err := t.vswitchd.Call(ctx, "revalidator/purge"); err != nil {
		return fmt.Errorf("have the datapath learn its flows anew: %w", err)
	}
	return nil
}

// Mark implements streams.Connections: by a packet of the connection for each,
// which ends in conntrack.
func (t tracker) Mark(ctx context.Context, denied bool, which []conntrack.Connection) error {
	if len(which) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	var value uint32
	if denied {
		value = pipeline.MarkDenied
	}
	set := openflow.SetField(openflow.CTMark(value, pipeline.MarkDenied))
	messages := make([]openflow.Message, len(which))
	for i, c := range which {
		messages[i] = &openflow.PacketOut{
			InPort: openflow.PortController, Packet: streams.Datagram(c),
			Actions: []openflow.Action{openflow.CT{Commit: true, Zone: c.Zone, Exec: []openflow.Action{set}}},
		}
	}
	if err := conn.Do(ctx, messages); err != nil {
		return errors.Join(errors.New("UDP streams cannot be marked"), err)
	}
	return nil
}

// forgetTimeout bounds the searches for connections: each takes 0.2 s among 290,000, and as long a
// pause.
const forgetTimeout = time.Minute

// forgetBalanced deletes connections of clients to endpoints that are gone, so that their next
// packet is balanced anew. Its caller has seen the flows on the switch. The datapath follows them a
// little later, so a client may be sent to the same endpoint again meanwhile. The connection is
// therefore deleted at once, and once more when the datapath's flows have been revalidated.
func (t tracker) forgetBalanced(ctx context.Context, which []backend.Balanced) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	zone := uint16(intent.DefaultRouter)
	messages := make([]*openflow.CTFlush, 0, len(which))
	for _, b := range which {
		m := &openflow.CTFlush{Zone: &zone, Proto: uint8(intent.UDP)}
		m.Orig.Dst, m.Orig.DstPort = b.Service.Addr(), b.Service.Port()
		m.Reply.Src, m.Reply.SrcPort = b.Endpoint.Address, b.Endpoint.Port
		messages = append(messages, m)
	}
	err := t.table().Forget(ctx, messages)
	if err == nil {
		err = t.Settled(ctx)
	}
	if err == nil {
		err = t.table().Forget(ctx, messages)
	}
	if err != nil {
		return fmt.Errorf("connections of UDP Services: %w", err)
	}
	return nil
}

// table is what ovs-vswitchd searches.
func (t tracker) table() ctflush.Table {
	table := ctflush.Table{Conn: t.conn}
	if d := t.intent.State().Local().Datapath; d != intent.DatapathSystem {
		table.Count = func(ctx context.Context) (int, error) {
			entries, _, err := t.Table(ctx, d)
			return entries, err
		}
	}
	return table
}

// releases has conntrack forget addresses that were released.
type releases struct {
	tracker
	applied func(ctx context.Context, revision uint64) error
	// revision is one of the intent without the Ports of the released addresses. It is 0 if an
	// earlier run released them all: this one's intent has never had their Ports.
	revision atomic.Uint64
}

var _ ctflush.Datapath = &releases{}

// released are the addresses of an attachment without a Port in the intent.
func (r *releases) released(at attachment.Attachment) []attachment.ReleasedAddress {
	s := r.intent.State()
	r.revision.Store(s.Revision())
	return released(s, at)
}

// Settled implements ctflush.Datapath.
func (r *releases) Settled(ctx context.Context) error {
	if err := r.applied(ctx, r.revision.Load()); err != nil {
		return err
	}
	return r.tracker.Settled(ctx)
}

// Flush implements ctflush.Datapath. The kernel's table is searched by the agent itself. The
// userspace datapath's is searched by ovs-vswitchd's main thread, which does nothing else
// meanwhile: so it gets pauses if that takes long.
func (r *releases) Flush(ctx context.Context, a attachment.ReleasedAddress) error {
	if r.inKernel() {
		_, err := conntrack.Kernel{}.Flush(ctx, a.Address, a.Zones)
		return err
	}
	return r.table().Forget(ctx, flushes(a.Address, a.Zones))
}

// flushes are the messages that forget what an address began or answers; no zones: in all of them.
//
// Open vSwitch 3.1 aborts when its userspace datapath is to forget an ICMPv6 connection. These are
// left: nothing but replies to pings passes by them, and they time out after a minute at most.
func flushes(a netip.Addr, zones []uint16) []*openflow.CTFlush {
	protocols := []uint8{0} // all
	if !a.Is4() {
		protocols = []uint8{uint8(intent.TCP), uint8(intent.UDP), uint8(intent.SCTP)}
	}
	var list []*openflow.CTFlush
	add := func(zone *uint16) {
		for _, p := range protocols {
			list = append(list, &openflow.CTFlush{Zone: zone, Proto: p, Orig: openflow.CTTuple{Src: a}})
			// What is its own endpoint is the client, too.
			if zone == nil || *zone != uint16(datapath.HairpinZone) {
				list = append(list, &openflow.CTFlush{Zone: zone, Proto: p, Reply: openflow.CTTuple{Src: a}})
			}
		}
	}
	if len(zones) == 0 {
		add(nil)
	}
	for _, z := range zones {
		add(&z)
	}
	return list
}

// datapathName is what ovs-vswitchd calls the datapath of all bridges of a type.
func datapathName(d intent.Datapath) string { return string(d) + "@ovs-" + string(d) }

// Table implements ctlimit.Conntrack. The kernel's table is that of the host's own connections,
// too.
func (t tracker) Table(ctx context.Context, d intent.Datapath) (entries, size int, err error) {
	if d == intent.DatapathNetdev {
		return t.vswitchd.ConnectionTable(ctx, datapathName(d))
	}
	if entries, err = t.kernelSetting("nf_conntrack_count"); err != nil {
		return 0, 0, err
	}
	size, err = t.kernelSetting("nf_conntrack_max")
	return entries, size, err
}

func (t tracker) kernelSetting(name string) (int, error) {
	path := filepath.Join(t.sysctlDir, "net", "netfilter", name)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("the kernel's connection table: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// Limits implements ctlimit.Conntrack.
func (t tracker) Limits(ctx context.Context, d intent.Datapath) (map[uint16]appctl.ZoneLimit, error) {
	return t.vswitchd.ZoneLimits(ctx, datapathName(d))
}

// SetLimits implements ctlimit.Conntrack.
func (t tracker) SetLimits(ctx context.Context, d intent.Datapath, limits map[uint16]int) error {
	return t.vswitchd.SetZoneLimits(ctx, datapathName(d), limits)
}

// DeleteLimits implements ctlimit.Conntrack.
func (t tracker) DeleteLimits(ctx context.Context, d intent.Datapath, zones []uint16) error {
	return t.vswitchd.DeleteZoneLimits(ctx, datapathName(d), zones)
}
