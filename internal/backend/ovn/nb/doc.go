// SPDX-License-Identifier: Apache-2.0

// Package nb has rows of OVN's northbound database as Coelan wants them: their types, one for each
// table (ovn-nb(5)), and Rows, all that a cluster wants.
//
// A desired row has a key, such as "Port/default/web-0" or "Router/red route 10.0.0.0/8 10.1.1.1",
// that is unique in its table: package northbound finds the row in the database by it, as
// names.Cluster.Owner. In desired rows, columns that refer to rows hold such keys in place of
// UUIDs; the tag nb of a column names the table.
//
// What belongs to a set that others add to is an Element: a Port is an Element of its switch's
// ports, an address is one of each Address_Set that has it. So a change costs what it changes,
// never the size of a set. A row of a table that is not a root (Table.Root) lasts as long as
// something refers to it, so each such row comes with the Element of its parent.
package nb
