// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"fmt"
)

// Flows dumps the flows of all tables with their counters.
func (c *Conn) Flows(ctx context.Context) ([]FlowDesc, error) {
	return dumpAll[FlowDescs](ctx, c, AllFlows().Body)
}

// FlowsOf dumps the flows that a request asks for.
func (c *Conn) FlowsOf(ctx context.Context, request *FlowDescRequest) ([]FlowDesc, error) {
	return dumpAll[FlowDescs](ctx, c, request)
}

// Groups dumps all groups.
func (c *Conn) Groups(ctx context.Context) ([]Group, error) {
	return dumpAll[GroupDescs](ctx, c, &GroupDescRequest{Group: GroupAllGroups})
}

// GroupStats reads the counters of all groups.
func (c *Conn) GroupStats(ctx context.Context) ([]GroupStat, error) {
	return dumpAll[GroupStats](ctx, c, &GroupStatsRequest{Group: GroupAllGroups})
}

// Meters dumps all meters.
func (c *Conn) Meters(ctx context.Context) ([]Meter, error) {
	return dumpAll[MeterConfigs](ctx, c, &MeterConfigRequest{Meter: MeterAll})
}

// MeterStats reads the counters of all meters.
func (c *Conn) MeterStats(ctx context.Context) ([]MeterStat, error) {
	return dumpAll[MeterStats](ctx, c, &MeterStatsRequest{Meter: MeterAll})
}

// Ports describes all ports.
func (c *Conn) Ports(ctx context.Context) ([]Port, error) {
	return dumpAll[PortDescs](ctx, c, &PortDescRequest{Port: PortAny})
}

// PortStats reads the counters of all ports.
func (c *Conn) PortStats(ctx context.Context) ([]PortStat, error) {
	return dumpAll[PortStats](ctx, c, &PortStatsRequest{Port: PortAny})
}

// TableStats reads the counters of all tables.
func (c *Conn) TableStats(ctx context.Context) ([]TableStat, error) {
	return dumpAll[TableStats](ctx, c, &TableStatsRequest{})
}

// dumpAll returns the items of all parts of a multipart answer.
func dumpAll[L ~[]T, T any](ctx context.Context, c *Conn, request MultipartBody) ([]T, error) {
	parts, err := c.Multipart(ctx, request)
	if err != nil {
		return nil, err
	}
	lists, n := make([]L, len(parts)), 0
	for i, part := range parts {
		list, ok := any(part).(L)
		if !ok {
			return nil, fmt.Errorf("openflow: %T answers %T", part, request)
		}
		lists[i], n = list, n+len(list)
	}
	all := make([]T, 0, n)
	for i, list := range lists {
		all = append(all, list...)
		lists[i], parts[i] = nil, nil // there may be very many
	}
	return all, nil
}

// Features asks what the switch is.
func (c *Conn) Features(ctx context.Context) (*Features, error) {
	return ask[*Features](ctx, c, &FeaturesRequest{})
}

// Desc asks for the names of the switch's make.
func (c *Conn) Desc(ctx context.Context) (*Desc, error) {
	parts, err := c.Multipart(ctx, &DescRequest{})
	if err != nil {
		return nil, err
	}
	d, ok := parts[0].(*Desc)
	if !ok {
		return nil, fmt.Errorf("openflow: %T answers a description request", parts[0])
	}
	return d, nil
}

// TLVTable reads the table of tunnel options.
func (c *Conn) TLVTable(ctx context.Context) (*TLVTableReply, error) {
	return ask[*TLVTableReply](ctx, c, &TLVTableRequest{})
}

// ask sends a request and returns its answer, of type R.
func ask[R Message](ctx context.Context, c *Conn, request Message) (R, error) {
	m, err := c.Request(ctx, request)
	if err != nil {
		var none R
		return none, err
	}
	r, ok := m.(R)
	if !ok {
		return r, fmt.Errorf("openflow: %T answers %T", m, request)
	}
	return r, nil
}
