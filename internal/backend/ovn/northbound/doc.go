// SPDX-License-Identifier: Apache-2.0

// Package northbound makes OVN's northbound database hold the rows that package nb says are wanted.
//
// A Client keeps a connection, with a view of all rows of our tables, and compares: rows that are
// wanted with those that have an owner (names.OwnerKey) of our cluster. All else is of other
// systems and is never changed; of a set of ours, what another system has put there stays. On a new
// connection everything is compared, so a database that was wiped or restored from a backup is
// mended, and one that is right gets no transaction. Later, only rows are compared that are wanted
// otherwise or that something has changed.
//
// What belongs together is written in one transaction: a row, what it refers to, and the element of
// its parent. A transaction that the database refuses is divided until only the rows are left out
// that it is refused for; they are tried again whenever anything changes.
package northbound
