// SPDX-License-Identifier: Apache-2.0

package appctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ZoneLimit is how many connections a conntrack zone may have, and has. Connections that are older
// than the limit are not counted.
type ZoneLimit struct{ Limit, Count int }

// ZoneLimits are those of a datapath such as netdev@ovs-netdev, by zone.
func (c *Client) ZoneLimits(ctx context.Context, datapath string) (map[uint16]ZoneLimit, error) {
	const command = "dpctl/ct-get-limits"
	text, err := c.Call(ctx, command, datapath)
	if err != nil {
		return nil, err
	}
	limits, err := parseZoneLimits(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.daemon, command, err)
	}
	return limits, nil
}

// SetZoneLimits adds limits, or changes them. A zone keeps its count when its limit changes.
func (c *Client) SetZoneLimits(ctx context.Context, datapath string, limits map[uint16]int) error {
	args := []string{datapath}
	for _, zone := range slices.Sorted(maps.Keys(limits)) {
		args = append(args, fmt.Sprintf("zone=%d,limit=%d", zone, limits[zone]))
	}
	_, err := c.Call(ctx, "dpctl/ct-set-limits", args...)
	return err
}

// DeleteZoneLimits takes the limits of zones away.
func (c *Client) DeleteZoneLimits(ctx context.Context, datapath string, zones []uint16) error {
	list := make([]string, len(zones))
	for i, zone := range zones {
		list[i] = strconv.Itoa(int(zone))
	}
	_, err := c.Call(ctx, "dpctl/ct-del-limits", datapath, "zone="+strings.Join(list, ","))
	return err
}

// ConnectionTable is how many connections the table of a userspace datapath holds, and may hold.
func (c *Client) ConnectionTable(
	ctx context.Context, datapath string,
) (entries, size int, err error) {
	if size, err = c.number(ctx, "dpctl/ct-get-maxconns", datapath); err != nil {
		return 0, 0, err
	}
	entries, err = c.number(ctx, "dpctl/ct-get-nconns", datapath)
	return entries, size, err
}

// parseZoneLimits reads lines such as "zone=1,limit=1000,count=12". Others, such as
// "default limit=0", are of no zone.
func parseZoneLimits(text string) (map[uint16]ZoneLimit, error) {
	limits := map[uint16]ZoneLimit{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "zone=") {
			continue
		}
		var zone uint16
		var l ZoneLimit
		_, err := fmt.Sscanf(line, "zone=%d,limit=%d,count=%d", &zone, &l.Limit, &l.Count)
		if err != nil {
			return nil, fmt.Errorf("%.60q is not the limit of a zone: %w", line, err)
		}
		limits[zone] = l
	}
	return limits, nil
}
