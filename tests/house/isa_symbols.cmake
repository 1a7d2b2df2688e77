# Fails where an object compiled for one instruction set defines a symbol that another object may define too (an inline
# function or template of a shared header): the linker keeps one of them, and a machine without that set would run it.
# Takes NM and OBJECTS.
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" shared "${symbols}")
  if(shared)
    list(JOIN shared "\n" shared)
    message(FATAL_ERROR "${object} defines shared symbols:\n${shared}")
  endif()
endforeach()
