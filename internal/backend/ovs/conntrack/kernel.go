// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Types of messages of ctnetlink.
const (
	msgNew    = unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_NEW
	msgGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_GET
	msgDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_DELETE
)

// Kernel is the table of the network namespace of its caller.
type Kernel struct{}

// Each calls fn for the connections of a zone with a protocol, until fn returns false or ctx ends.
func (Kernel) Each(ctx context.Context, zone uint16, protocol uint8, fn func(Connection) bool) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := dump(ctx, filter{family: family, protocol: protocol}, func(e entry) bool {
			return e.Zone != zone || fn(e.Connection)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CountZones returns how many connections each zone has.
func (Kernel) CountZones(ctx context.Context) (map[uint16]int, error) {
	count := map[uint16]int{}
	err := dump(ctx, filter{}, func(e entry) bool { count[e.Zone]++; return true })
	return count, err
}

// Flush forgets the connections that an address began or answers, in the given zones; none: in all
// but the zone of the host's own connections. It returns how many.
func (Kernel) Flush(ctx context.Context, a netip.Addr, zones []uint16) (int, error) {
	var list []entry
	for _, f := range involving(a) {
		err := dump(ctx, f, func(e entry) bool {
			if e.flushedWith(a, zones) {
				list = append(list, e)
			}
			return true
		})
		if err != nil {
			return 0, err
		}
	}
	flushed := 0
	for _, e := range list {
		gone, err := e.remove()
		if err != nil {
			return flushed, fmt.Errorf("connection from %s to %s: %w", e.Orig.Src, e.Orig.Dst, err)
		}
		if gone {
			flushed++
		}
	}
	return flushed, nil
}

// request begins a message.
func request(typ, flags int, family uint8) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(typ, flags)
	r.AddRawData([]byte{family, unix.NFNETLINK_V0, 0, 0})
	return r
}

// attempts bounds how often a dump is begun anew that a change of the table's size has interrupted.
const attempts = 3

// dump calls fn for each connection that f lets pass. One may come twice.
func dump(ctx context.Context, f filter, fn func(entry) bool) error {
	attributes, err := f.encode()
	if err != nil {
		return err
	}
	for range attempts {
		r := request(msgGet, unix.NLM_F_DUMP, f.family)
		r.AddRawData(attributes)
		var bad error
		err = r.ExecuteIter(unix.NETLINK_NETFILTER, msgNew, func(data []byte) bool {
			if bad = ctx.Err(); bad != nil {
				return false
			}
			e, err := parse(data)
			if err != nil {
				bad = err
				return false
			}
			return fn(e)
		})
		if bad != nil {
			return fmt.Errorf("list connections: %w", bad)
		}
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	return nil
}

// remove deletes the connection; false: it was gone.
func (e entry) remove() (bool, error) {
	attributes, err := e.encode()
	if err != nil {
		return false, err
	}
	r := request(msgDelete, unix.NLM_F_ACK, e.family)
	r.AddRawData(attributes)
	_, err = r.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}
