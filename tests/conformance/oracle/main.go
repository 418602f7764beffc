// Command oracle answers questions with upstream's own code: JSON lines in, one JSON line out for
// each, in the same order, flushed at once so that a caller may keep the process open.
//
//	oracle allocate   structured.NewAllocator(...).Allocate
//	oracle cel        GetCompiler / CompileCELExpression / DeviceMatches
//	oracle quantity   resource.ParseQuantity, its canonical text, comparing and adding
//	oracle environment  what CEL expressions may use: functions, macros, variables
//	oracle version    the upstream release the answers come from
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// upstreamVersion is the Kubernetes release whose staging modules go.mod pins.
const upstreamVersion = "v1.37.2"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: oracle allocate|cel|quantity|environment|version")
		os.Exit(2)
	}
	var answer func(line []byte) any
	switch os.Args[1] {
	case "allocate":
		answer = answerAllocate
	case "cel":
		answer = answerCEL
	case "quantity":
		answer = answerQuantity
	case "environment":
		if err := writeEnvironment(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
		return
	case "version":
		fmt.Println(upstreamVersion)
		return
	default:
		fmt.Fprintf(os.Stderr, "oracle: unknown question %q\n", os.Args[1])
		os.Exit(2)
	}
	if err := serve(os.Stdin, os.Stdout, answer); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve reads a line, writes its answer, and flushes whenever no further line is waiting.
func serve(in io.Reader, out io.Writer, answer func([]byte) any) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if encodeErr := encoder.Encode(answer(line)); encodeErr != nil {
				return encodeErr
			}
		}
		if reader.Buffered() == 0 || err != nil {
			if flushErr := writer.Flush(); flushErr != nil {
				return flushErr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
